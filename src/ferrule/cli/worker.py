"""The program of one worker: `python -m ferrule.cli.worker DESCRIPTOR`, started by an overseer and nobody else."""

from __future__ import annotations

import sys
from typing import NoReturn

from ferrule.errors import FerruleError
from ferrule.server.hosting.runner import run_blocking
from ferrule.settings.sources import NOTHING, read_file, use
from ferrule.transports.registry import TRANSPORTS
from ferrule.workers import worker
from ferrule.workers.overseer import CANNOT_BEGIN
from ferrule.workers.plan import FAILED, WorkerPlan, read_plan, say


def main() -> None:
    """Serve what the plan says, until a signal comes."""
    control = int(sys.argv[1])
    plan = read_plan(control)
    worker.slot = plan.slot
    overseer = worker.OverseerWatch(control, plan.folder)
    try:
        from ferrule.cli.combined import load_places

        use(read_file(plan.configuration) if plan.configuration else NOTHING)
        server = load_places(plan.places, plan.arguments)
        listener = TRANSPORTS[plan.transport].new_listener(plan.options)
    except FerruleError as error:
        _give_up(plan, str(error))
    serving = worker.Worker(server, plan, overseer)
    try:
        run_blocking(lambda: serving.run(listener))
    except Exception as error:
        if serving.began:
            raise
        # Its lifespan failed, or its listener: no other worker would fare better.
        _give_up(plan, str(error) if isinstance(error, FerruleError) else f"{type(error).__name__}: {error}")


def _give_up(plan: WorkerPlan, why: str) -> NoReturn:
    """End before anything was served; the overseer says why, once."""
    say(plan.status, FAILED, why)
    raise SystemExit(CANNOT_BEGIN)


if __name__ == "__main__":
    main()
