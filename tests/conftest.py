"""What every test stands on."""

from __future__ import annotations

import signal

# A shell starts background jobs with SIGINT ignored, and children inherit that: tests that press Ctrl-C would press it
# in vain. A handler of our own is not inherited, so that children start with the default again.
signal.signal(signal.SIGINT, signal.default_int_handler)
