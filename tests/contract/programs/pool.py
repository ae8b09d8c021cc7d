# ruff: noqa: T201 - in the style of public samples
"""A pool of threads, each with its own context, stream and copy of the model."""

import ctypes
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import acl
import numpy as np

local = threading.local()
workers = []


class Worker:
    def __init__(self, path):
        assert acl.rt.set_device(0) == 0
        self.context, ret = acl.rt.create_context(0)
        self.stream, ret = acl.rt.create_stream()
        self.model, ret = acl.mdl.load_from_file(path)
        assert ret == 0, acl.get_recent_err_msg()
        self.desc = acl.mdl.create_desc()
        acl.mdl.get_desc(self.desc, self.model)
        self.size = acl.mdl.get_input_size_by_index(self.desc, 0)
        self.host, ret = acl.rt.malloc_host(self.size)
        raw = (ctypes.c_char * self.size).from_address(self.host)
        self.view = np.frombuffer(raw, np.float32)
        self.sides = [self.side() for _ in range(2)]

    def side(self):
        ptr, ret = acl.rt.malloc(self.size, 0)
        assert ret == 0
        dataset, buf = acl.mdl.create_dataset(), acl.create_data_buffer(ptr, self.size)
        acl.mdl.add_dataset_buffer(dataset, buf)
        return ptr, dataset, buf

    def run(self, number):
        (there, ins, _), (back, outs, _) = self.sides
        size, stream = self.size, self.stream
        self.view[:] = number
        assert acl.rt.memcpy_async(there, size, self.host, size, 1, stream) == 0
        assert acl.mdl.execute_async(self.model, ins, outs, stream) == 0
        assert acl.rt.memcpy_async(self.host, size, back, size, 2, stream) == 0
        assert acl.rt.synchronize_stream(stream) == 0
        return float(self.view[0])

    def release(self):
        assert acl.rt.set_context(self.context) == 0
        for ptr, dataset, buf in self.sides:
            acl.mdl.destroy_dataset(dataset)
            acl.destroy_data_buffer(buf)
            acl.rt.free(ptr)
        acl.rt.free_host(self.host)
        assert acl.mdl.unload(self.model) == 0
        acl.mdl.destroy_desc(self.desc)
        acl.rt.destroy_stream(self.stream)
        acl.rt.destroy_context(self.context)
        acl.rt.reset_device(0)


def begin(path):
    local.worker = Worker(path)
    workers.append(local.worker)


def run(number):
    return local.worker.run(number)


acl.init()
with ThreadPoolExecutor(4, initializer=begin, initargs=sys.argv[1:]) as pool:
    results = list(pool.map(run, range(40)))
print(results == [2.0 * number + 1 for number in range(40)])
for worker in workers:
    worker.release()
print(acl.finalize())
