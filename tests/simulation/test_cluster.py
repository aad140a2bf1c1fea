"""The same sweep on a real Dask cluster of two processes: the same bits, also when a worker dies in the
middle.
"""

import os
import signal

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.simulation.episodes import PaperEpisodes
from invariant_bandits.simulation.paper import PaperWorld

pytestmark = pytest.mark.system

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

EPISODES = PaperEpisodes(PaperWorld(blocks=(2, 1), varying=1), logged=200)
SETTINGS = {"environment": EPISODES, "horizon": 20, "replications": 6, "seed": 3}


@pytest.fixture(scope="module")
def client():
    """Two workers; a repetition that has killed two is given up."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def makers():
    """Lambdas, which travel by value: the workers cannot import this file."""
    import invariant_bandits as ib

    return {
        "LinUCB": lambda past: ib.LinUCB(past.dim),
        "LinTS": lambda past: ib.LinTS(past.dim, seed=3),
        "AutoISD": lambda past: ib.AutoISD.from_history(past.moments),
    }


def assert_same(one, other):
    assert list(one.regret) == list(other.regret)
    for name, path in one.regret.items():
        np.testing.assert_array_equal(path, other.regret[name])
    assert one.settings == other.settings


def test_a_cluster_returns_the_bits_of_one_process(client):
    heard = []
    there = ib.simulate(
        makers(), client=client, progress=lambda *at: heard.append(at), **SETTINGS
    )
    assert_same(there, ib.simulate(makers(), **SETTINGS))
    assert heard == [(done, 6) for done in range(1, 7)]


def test_a_worker_that_is_killed_in_the_middle_changes_nothing(client, tmp_path):
    fatal = float(EPISODES.draw(20, np.random.default_rng((3, 2))).noise[0])
    mark = tmp_path / "killed"

    def fragile(past):
        """Kills the process it runs in, once, in repetition 2."""
        import invariant_bandits as ib

        if float(past.truth.noise[0]) == fatal and not mark.exists():
            mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return ib.LinUCB(past.dim)

    there = ib.simulate({"fragile": fragile, **makers()}, client=client, **SETTINGS)
    assert int(mark.read_text()) != os.getpid()
    here = ib.simulate(
        {"fragile": lambda past: ib.LinUCB(past.dim), **makers()}, **SETTINGS
    )
    assert_same(there, here)


def test_an_error_on_the_cluster_names_policy_and_repetition(client):
    def broken(past):
        raise ZeroDivisionError("planted")

    with pytest.raises(ZeroDivisionError, match="planted") as caught:
        ib.simulate({"broken": broken}, client=client, **SETTINGS | {"replications": 1})
    assert caught.value.__notes__ == [
        "while playing policy 'broken' in repetition 0 of seed 3"
    ]


def test_a_repetition_that_kills_every_worker_is_named(client):
    def deadly(past):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(distributed.KilledWorker) as caught:
        ib.simulate({"deadly": deadly}, client=client, **SETTINGS | {"replications": 1})
    assert caught.value.__notes__ == [
        "every worker that was given repetition 0 of seed 3 died"
    ]


def test_a_process_that_dies_is_told_with_what_it_left_unfinished():
    from concurrent.futures.process import BrokenProcessPool

    parent = os.getpid()

    def deadly(past):
        assert os.getpid() != parent
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(BrokenProcessPool) as caught:
        ib.simulate({"deadly": deadly}, jobs=2, **SETTINGS | {"replications": 3})
    assert (
        "not finished were repetition 0 of seed 3, repetition 1 of seed 3, repetition 2 of seed 3"
        in caught.value.__notes__[0]
    )


def test_a_client_must_be_one_and_does_without_jobs(client):
    with pytest.raises(
        ib.InputError,
        match=r"client must be a distributed\.Client, with jobs=1, got 'tcp",
    ):
        ib.simulate(makers(), client="tcp://127.0.0.1:8786", **SETTINGS)
    with pytest.raises(ib.InputError, match=r"with jobs=1, got .* and jobs=2"):
        ib.simulate(makers(), client=client, jobs=2, **SETTINGS)
