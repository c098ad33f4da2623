"""Millrace and its peers on the same data in one run: the table on the terminal, JSON, tables and a chart in a folder.

python bench/compare.py [--quick] [--jobs W,A,E,L1,L2,M1,M2,S,B] [--peers NAME,…] [--rounds N] [--into DIR] [--add]
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from measure import broker
from peers import catching_up, living
from peers.contract import MissingError, Peer
from peers.results import Results
from peers.suite import Case, Live, cases

from millrace.clients.kafka.cluster import Cluster


def main(about: str | None = __doc__, jobs: str | None = None) -> None:
    """Prepare who can be had, run round by round, show; `jobs` are taken if none are named."""
    signal.signal(signal.SIGTERM, ended)
    given = arguments(about, jobs)
    wanted = given.jobs.split(",") if given.jobs else []
    chosen = [case for case in cases(given.quick, given.scale) if not wanted or case.letter in wanted]
    results = Results(given.into, add=given.add)
    missing = prepared(chosen, given.peers, results)
    with broker() as cluster:
        for number in range(given.rounds or (1 if given.quick else 3)):
            for case, peer in turns(chosen, number):
                if peer.name not in missing and taking_part(peer, given.peers):
                    once(cluster, case, peer, results)
    results.show()


def ended(*_: object) -> None:
    """Leave no program behind; a second signal does not disturb that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit("ended")


def arguments(about: str | None, jobs: str | None) -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer records, one round")
    parser.add_argument("--jobs", default=jobs, help="only these, by letter")
    parser.add_argument("--peers", help="only those whose names begin like one of these")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the records, except those of S")
    parser.add_argument("--into", type=Path, default=Path("build/bench"), help="where results are kept")
    parser.add_argument("--add", action="store_true", help="add to the results that are there")
    return parser.parse_args()


def prepared(chosen: list[Case], names: str | None, results: Results) -> set[str]:
    """Fetch what each peer needs; who cannot be had is left out, with the reason."""
    missing = set()
    for peer in {peer.name: peer for case in chosen for peer in case.peers if taking_part(peer, names)}.values():
        try:
            peer.prepare()
            results.version(peer.name, peer.version())
        except MissingError as error:
            print(f"{peer.name} is left out: {error}", file=sys.stderr)
            results.left_out(peer.name, str(error))
            missing.add(peer.name)
    return missing


def taking_part(peer: Peer, names: str | None) -> bool:
    """Whether it was asked for."""
    return not names or any(peer.name.lower().startswith(name.strip().lower()) for name in names.split(","))


def turns(chosen: list[Case], number: int) -> Iterator[tuple[Case, Peer]]:
    """The peers of each job in turn, from another one on and in the other direction each round."""
    for case in chosen:
        order = case.peers[:: -1 if number % 2 else 1]
        shift = number // 2 % len(order)
        for peer in order[shift:] + order[:shift]:
            yield case, peer


def once(cluster: Cluster, case: Case, peer: Peer, results: Results) -> None:
    """One run; what is not right has no time."""
    mark = f"{case.letter}-{time.monotonic_ns()}"
    row: dict[str, object]
    try:
        if isinstance(case, Live):
            job = case.job()
            row = {"about": job.about, **living.run(cluster, job, peer, mark, case.warm, case.seconds).row()}
        else:
            catch_up = case.made(peer)
            cold, warm = catch_up.sizes()
            sizes = {"about": catch_up.about, "cold_records": cold, "warm_records": warm}
            row = {**sizes, **catching_up.run(cluster, catch_up, peer, mark).row()}
    except catching_up.WrongError as error:
        row = {"wrong": str(error)}
    results.add(case.letter, getattr(case, "size", 0), peer.name, row)


if __name__ == "__main__":
    main()
