"""``python -m rlvr.cli`` is ``rlvr``."""

import sys

from rlvr.cli import main

sys.exit(main())
