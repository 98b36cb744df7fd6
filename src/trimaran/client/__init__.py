"""The client hull: requests, deadlines, healing, and what servers may ask in return. No sockets, no HTTP library."""
