"""What the tests of this project and of others stand on."""

from ferrule.testing.clock import VirtualClock, run_in_virtual_time
from ferrule.testing.pair import ERAS, pair
from ferrule.testing.recorder import Recorded, Recorder

__all__ = ["ERAS", "Recorded", "Recorder", "VirtualClock", "pair", "run_in_virtual_time"]
