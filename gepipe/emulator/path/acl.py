"""What `import acl` finds in the processes that a program on the emulator starts.

`python -m gepipe.emulator` puts this folder on the `PYTHONPATH` of its children, nobody else does.
"""

import sys

from gepipe.emulator.installation import install, is_chosen

if not is_chosen():
    raise ModuleNotFoundError("No module named 'acl'", name="acl")
del sys.modules[__name__]
install()
