# ruff: noqa: T201, TRY002, UP032 - in the style of public samples
"""Resource classes that release everything in `__del__`, at the end of the interpreter."""

import sys

import acl
import numpy as np

ACL_MEM_MALLOC_NORMAL_ONLY = 2
ACL_MEMCPY_HOST_TO_DEVICE = 1
ACL_MEMCPY_DEVICE_TO_HOST = 2
ACL_SUCCESS = 0


def check_ret(message, ret):
    if ret != ACL_SUCCESS:
        raise Exception("{} failed ret={}".format(message, ret))


class Resource:
    def __init__(self, device_id=0):
        self.device_id = device_id
        self.models = []
        ret = acl.init()
        check_ret("acl.init", ret)
        ret = acl.rt.set_device(device_id)
        check_ret("acl.rt.set_device", ret)
        self.context, ret = acl.rt.create_context(device_id)
        check_ret("acl.rt.create_context", ret)
        self.stream, ret = acl.rt.create_stream()
        check_ret("acl.rt.create_stream", ret)

    def __del__(self):
        for model in self.models:
            model.destroy()
        acl.rt.destroy_stream(self.stream)
        acl.rt.destroy_context(self.context)
        acl.rt.reset_device(self.device_id)
        ret = acl.finalize()
        print("released", ret)


class Model:
    def __init__(self, resource, path):
        self.stream = resource.stream
        self.model_id, ret = acl.mdl.load_from_file(path)
        check_ret("acl.mdl.load_from_file", ret)
        self.desc = acl.mdl.create_desc()
        ret = acl.mdl.get_desc(self.desc, self.model_id)
        check_ret("acl.mdl.get_desc", ret)
        self.inputs = self.make_dataset(
            acl.mdl.get_num_inputs(self.desc), acl.mdl.get_input_size_by_index
        )
        self.outputs = self.make_dataset(
            acl.mdl.get_num_outputs(self.desc), acl.mdl.get_output_size_by_index
        )
        resource.models.append(self)

    def make_dataset(self, count, get_size):
        dataset = acl.mdl.create_dataset()
        for i in range(count):
            size = get_size(self.desc, i)
            ptr, ret = acl.rt.malloc(size, ACL_MEM_MALLOC_NORMAL_ONLY)
            check_ret("acl.rt.malloc", ret)
            _, ret = acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(ptr, size))
            check_ret("acl.mdl.add_dataset_buffer", ret)
        return dataset

    def execute(self, array):
        buf = acl.mdl.get_dataset_buffer(self.inputs, 0)
        data = array.tobytes()
        ret = acl.rt.memcpy(
            acl.get_data_buffer_addr(buf),
            acl.get_data_buffer_size(buf),
            acl.util.bytes_to_ptr(data),
            len(data),
            ACL_MEMCPY_HOST_TO_DEVICE,
        )
        check_ret("acl.rt.memcpy", ret)
        ret = acl.mdl.execute(self.model_id, self.inputs, self.outputs)
        check_ret("acl.mdl.execute", ret)
        dims, ret = acl.mdl.get_cur_output_dims(self.desc, 0)
        check_ret("acl.mdl.get_cur_output_dims", ret)
        buf = acl.mdl.get_dataset_buffer(self.outputs, 0)
        size = acl.get_data_buffer_size(buf)
        result = np.zeros(size, np.byte).tobytes()
        ret = acl.rt.memcpy(
            acl.util.bytes_to_ptr(result),
            size,
            acl.get_data_buffer_addr(buf),
            size,
            ACL_MEMCPY_DEVICE_TO_HOST,
        )
        check_ret("acl.rt.memcpy", ret)
        return np.frombuffer(result, np.float32).reshape(dims["dims"])

    def destroy(self):
        # Asynchronous, at a time when the interpreter has no threads left.
        check_ret(
            "async",
            acl.mdl.execute_async(self.model_id, self.inputs, self.outputs, self.stream),
        )
        check_ret("sync", acl.rt.synchronize_stream(self.stream))
        for dataset in (self.inputs, self.outputs):
            for i in range(acl.mdl.get_dataset_num_buffers(dataset)):
                buf = acl.mdl.get_dataset_buffer(dataset, i)
                acl.rt.free(acl.get_data_buffer_addr(buf))
                acl.destroy_data_buffer(buf)
            acl.mdl.destroy_dataset(dataset)
        acl.mdl.unload(self.model_id)
        acl.mdl.destroy_desc(self.desc)


resource = Resource()
model = Model(resource, sys.argv[1])
for number in range(2):
    print(model.execute(np.full((2, 4), number, np.float32)).tolist())
