"""What proxies and gateways pass on: ours and other people's before the same servers (`make world-proxies`)."""
