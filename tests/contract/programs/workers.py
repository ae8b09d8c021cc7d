# ruff: noqa: T201 - in the style of public samples
"""One process for each card, begun by spawn."""

import multiprocessing

import acl


def work(device):
    assert acl.init() == 0
    assert acl.rt.set_device(device) == 0
    index, ret = acl.rt.get_device()
    assert ret == 0
    acl.rt.reset_device(device)
    acl.finalize()
    return index, acl.get_soc_name()


if __name__ == "__main__":
    count, _ = acl.rt.get_device_count()
    with multiprocessing.get_context("spawn").Pool(count, maxtasksperchild=1) as pool:
        print(sorted(pool.map(work, range(count), 1)))
