"""What counts once over workers, over a real mesh."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ferrule.errors import StoreUnavailable
from ferrule.server.hosting.worker_seen import WorkerSeen
from ferrule.workers.mesh import Mesh
from ferrule.workers.neighbours import WorkerNeighbours
from ferrule.workers.questions import Questions


def test_a_key_counts_once_whichever_worker_is_shown_it_first(tmp_path: Path) -> None:
    async def main() -> None:
        meshes = [Mesh(str(tmp_path), slot, 2) for slot in (0, 1)]
        places = [WorkerSeen(WorkerNeighbours(mesh, Questions(mesh))) for mesh in meshes]
        for mesh in meshes:
            mesh.open()
        for number in range(20):
            first, second = places[number % 2], places[(number + 1) % 2]
            assert await first.add(f"key {number}", 10.0)
            assert not await second.add(f"key {number}", 10.0)
            assert not await first.add(f"key {number}", 10.0)
        # Both remember some of them.
        assert all(len(place._own._keys._kept) for place in places)
        meshes[1].close()
        outcomes = await asyncio.gather(
            *(places[0].add(f"other {number}", 10.0) for number in range(10)), return_exceptions=True
        )
        assert {type(outcome) for outcome in outcomes} == {bool, StoreUnavailable}
        meshes[0].close()

    asyncio.run(asyncio.wait_for(main(), 20))
