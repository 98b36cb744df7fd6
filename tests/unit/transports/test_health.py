"""The options of the health routes, and the gauges by name."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from trimaran import Server
from trimaran.errors import ConfigError
from trimaran.transports.engine import Engine, engines_of
from trimaran.transports.guard import Guard
from trimaran.transports.health import Gauges, HealthRoutes, choose_health, measure, read_gauge


def served(*paths: str, **options: Any) -> list[str]:
    made = choose_health(**options)
    return [path for path in paths if made is not None and path in made._routes]


def test_probes_are_on_and_gauges_off_unless_told_otherwise() -> None:
    every = ("/livez", "/readyz", "/gauges")
    assert served(*every) == ["/livez", "/readyz"]
    assert served(*every, gauges=True) == ["/livez", "/readyz", "/gauges"]
    assert choose_health(health=False) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"health": "/healthz"}, "health must be True or False, not '/healthz'"),
        ({"gauges": 1}, "gauges must be True or False, not 1"),
        ({"ready_needs_store": None}, "ready_needs_store must be True or False, not None"),
        ({"health": False, "gauges": True}, "gauges=True goes with the health routes; leave out health=False"),
        ({"health": False, "ready_needs_store": True}, "ready_needs_store=True goes with the health routes"),
    ],
    ids=["health", "gauges", "store", "gauges-alone", "store-alone"],
)
def test_a_wrong_option_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        choose_health(**options)
    assert str(caught.value).startswith(message)


def test_a_health_belongs_to_one_engine() -> None:
    server, health = Server("one", version="1"), HealthRoutes()
    Engine(server, Guard("127.0.0.1"), health=health)
    with pytest.raises(ConfigError, match="make one for each"):
        Engine(server, Guard("127.0.0.1"), path="/other", health=health)


def test_every_gauge_can_be_read_by_its_name() -> None:
    server = Server("one", version="1")
    found = measure(server, ())
    for name in Gauges.__struct_fields__:
        assert read_gauge(name, server, ()) == getattr(found, name), name


def test_endpoints_of_a_server_add_up_and_are_forgotten_with_it() -> None:
    server = Server("one", version="1")
    engines = [Engine(server, Guard("127.0.0.1"), path=path) for path in ("/a", "/b")]
    assert engines_of(server) == engines
    assert engines_of(Server("other", version="1")) == []
    engines[0].listeners, engines[1].listeners = 1, 2
    assert read_gauge("listeners", server, engines) == 3
    assert engines[0].gauges().listeners == 1
    del engines[0]
    gc.collect()
    assert engines_of(server) == engines
