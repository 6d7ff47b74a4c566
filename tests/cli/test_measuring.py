"""The measuring of the demo: what it counts, and that it looks at the answers."""

import pytest

from rpcfast import Server
from rpcfast.cli import measuring
from rpcfast.cli.failure import Failure
from rpcfast.cli.measuring import IN_FLIGHT, Figures, async_client, client, json_pipelined, json_sequential


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than a few calls."""
    monkeypatch.setattr(measuring, "SECONDS", 0.01)


def wrong() -> Server:
    """A server that cannot add."""
    server = Server()
    server(name="sum")(lambda a, b: a + b + (a == 40))
    return server


def test_figures_are_rates_and_quantiles() -> None:
    """Calls by seconds; the time within which a part of the calls was answered."""
    figures = Figures([0.4, 0.1, 0.3, 0.2, 0.5], 0.5)
    assert (figures.rate, figures.quantile(0), figures.quantile(0.5), figures.quantile(1)) == (10, 0.1, 0.3, 0.5)


@pytest.mark.parametrize("measure", [json_sequential, json_pipelined])
def test_plain_sockets_are_measured(measure: object, serve: object) -> None:
    """Each call is counted once: pipelined ones in whole rounds."""
    address = serve("rpcfast.quickstart", "--port", "0").address
    figures = measure(address)
    assert len(figures.latencies) > 0
    assert measure is json_sequential or len(figures.latencies) % IN_FLIGHT == 0


def test_both_clients_are_measured() -> None:
    """Over a server of this process."""
    server = Server()
    server(name="sum")(lambda a, b: a + b)
    assert len(client(server).latencies) > 0
    assert len(async_client(server).latencies) >= IN_FLIGHT


def test_a_wrong_answer_ends_it() -> None:
    """The demo does not only count."""
    with pytest.raises(Failure, match=r"sum\(40, 1\) was answered with 42"):
        client(wrong())
