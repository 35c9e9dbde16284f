"""`python -m hybridml_examples.study`."""

import sys

from .run import main

sys.exit(main())
