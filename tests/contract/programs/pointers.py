# ruff: noqa: T201 - in the style of public samples
"""Old and new ways to hand NumPy arrays to pyACL, and liberties that cards allow."""

import acl
import numpy as np

ret = acl.init("")
ret = acl.rt.set_device(0)
context, ret = acl.rt.create_context(0)
x = np.arange(16, dtype=np.float32)
device, ret = acl.rt.malloc(x.nbytes, 0)
for way in ("old", "contiguous", "new"):
    if way == "old":
        ptr = acl.util.numpy_to_ptr(x)
    elif way == "contiguous":
        ptr, x = acl.util.numpy_contiguous_to_ptr(x)
    else:
        ptr = acl.util.bytes_to_ptr(x.tobytes())  # the bytes are gone at once
    ret = acl.rt.memcpy(device, x.nbytes, ptr, x.nbytes, 1)
    host, ret = acl.rt.malloc_host(x.nbytes)
    ret = acl.rt.memcpy(host, x.nbytes, device, x.nbytes, 0)  # should be 2
    if way == "new":
        y = np.frombuffer(acl.util.ptr_to_bytes(host, x.nbytes), np.float32)
    else:
        y = acl.util.ptr_to_numpy(host, (16,), 11).copy()
    print(way, (x == y).all())
    acl.rt.free_host(host)
acl.rt.free(device)
acl.rt.destroy_context(context)
acl.rt.reset_device(0)
acl.finalize()
