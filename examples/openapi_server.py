"""Tools from an HTTP API that already exists: a FastAPI application, described by its own OpenAPI document.

    pip install fastapi
    trimaran list examples/openapi_server.py
    trimaran call examples/openapi_server.py get_boat name=Tern

Add it to Claude Code:

    claude mcp add harbour -- python /path/to/examples/openapi_server.py

For an API elsewhere: `Server.from_openapi("api.yaml", base_url="https://api.example.com", auth="the key")`, or without
a file of your own: `trimaran serve api.yaml --base-url https://api.example.com --token-env API_KEY`.
"""

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from trimaran import Server


class Boat(BaseModel):
    name: str
    length: float


app = FastAPI(title="Harbour", version="1.0.0")
BOATS = {"Tern": Boat(name="Tern", length=8.5)}


@app.get("/boats/{name}", operation_id="get_boat")
async def get_boat(name: str) -> Boat:
    """Find a boat by its name."""
    if name not in BOATS:
        raise HTTPException(404, f"there is no {name}; there are {', '.join(BOATS)}")
    return BOATS[name]


@app.post("/boats", operation_id="add_boat", status_code=201)
async def add_boat(boat: Boat) -> Boat:
    """Bring a boat into the harbour."""
    BOATS[boat.name] = boat
    return boat


server = Server.from_fastapi(app)

if __name__ == "__main__":
    server.run()
