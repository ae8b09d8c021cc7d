# ruff: noqa: T201, TRY002 - in the style of public samples
"""Asynchronous inference with results fetched in callbacks, as the classification samples do."""

import argparse

import acl
import numpy as np


class Net:
    def __init__(self, path):
        acl.init()
        acl.rt.set_device(0)
        self.context, _ = acl.rt.create_context(0)
        self.stream, _ = acl.rt.create_stream()
        self.model_id, ret = acl.mdl.load_from_file(path)
        if ret != 0:
            raise Exception("load", ret)
        self.desc = acl.mdl.create_desc()
        acl.mdl.get_desc(self.desc, self.model_id)
        self.exit_flag = False
        self.pool = []
        self.results = []

    def dataset(self, size, data=None):
        ptr, ret = acl.rt.malloc(size, 2)
        assert ret == 0
        if data is not None:
            assert acl.rt.memcpy(ptr, size, acl.util.bytes_to_ptr(data), size, 1) == 0
        dataset = acl.mdl.create_dataset()
        acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(ptr, size))
        return dataset

    def process_callback(self, args_list):
        context, timeout = args_list
        acl.rt.set_context(context)
        while not self.exit_flag:
            acl.rt.process_report(timeout)

    def callback(self, datasets):
        for _, output in datasets:
            buf = acl.mdl.get_dataset_buffer(output, 0)
            size = acl.get_data_buffer_size_v2(buf)
            host, ret = acl.rt.malloc_host(size)
            assert ret == 0
            assert acl.rt.memcpy(host, size, acl.get_data_buffer_addr(buf), size, 2) == 0
            data = acl.util.ptr_to_bytes(host, size)
            self.results.append(float(np.frombuffer(data, np.float32)[0]))
            acl.rt.free_host(host)

    def run(self, times):
        size = acl.mdl.get_input_size_by_index(self.desc, 0)
        for number in range(times):
            data = np.full(size // 4, number, np.float32).tobytes()
            self.pool.append([self.dataset(size, data), self.dataset(size)])
        tid, ret = acl.util.start_thread(self.process_callback, [self.context, 50])
        assert ret == 0
        assert acl.rt.subscribe_report(tid, self.stream) == 0
        for pair in self.pool:
            assert acl.mdl.execute_async(self.model_id, *pair, self.stream) == 0
            assert acl.rt.launch_callback(self.callback, [pair], 1, self.stream) == 0
        assert acl.rt.synchronize_stream(self.stream) == 0
        assert acl.rt.unsubscribe_report(tid, self.stream) == 0
        self.exit_flag = True
        assert acl.util.stop_thread(tid) == 0
        print(self.results)

    def release(self):
        acl.mdl.unload(self.model_id)
        acl.mdl.destroy_desc(self.desc)
        for pair in self.pool:
            for dataset in pair:
                buf = acl.mdl.get_dataset_buffer(dataset, 0)
                acl.rt.free(acl.get_data_buffer_addr(buf))
                acl.destroy_data_buffer(buf)
                acl.mdl.destroy_dataset(dataset)
        acl.rt.destroy_stream(self.stream)
        acl.rt.destroy_context(self.context)
        acl.rt.reset_device(0)
        acl.finalize()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    net = Net(given.model)
    net.run(given.times)
    net.release()
