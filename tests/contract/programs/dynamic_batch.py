# ruff: noqa: T201 - in the style of public samples
"""A model with batch gears: one buffer for the largest, the gear set before each run."""

import sys

import acl
import numpy as np

GEAR = "ascend_mbatch_shape_data"


def ok(result):
    *values, ret = result if isinstance(result, tuple) else (result,)
    assert ret == 0, (ret, acl.get_recent_err_msg())
    return values[0] if values else None


ok(acl.init())
ok(acl.rt.set_device(0))
model_id = ok(acl.mdl.load_from_file(sys.argv[1]))
desc = acl.mdl.create_desc()
ok(acl.mdl.get_desc(desc, model_id))
batches = ok(acl.mdl.get_dynamic_batch(desc))["batch"]
print("gears", batches)
index = ok(acl.mdl.get_input_index_by_name(desc, GEAR))
made = []
datasets = []
for count, get_size in (
    (acl.mdl.get_num_inputs(desc), acl.mdl.get_input_size_by_index),
    (acl.mdl.get_num_outputs(desc), acl.mdl.get_output_size_by_index),
):
    dataset = acl.mdl.create_dataset()
    for i in range(count):
        size = get_size(desc, i)
        ptr = ok(acl.rt.malloc(size, 0))
        buf = acl.create_data_buffer(ptr, size)
        ok(acl.mdl.add_dataset_buffer(dataset, buf))
        made.append((ptr, buf, size))
    datasets.append(dataset)
for rows in (1, 3, 4):
    gear = min(b for b in batches if b >= rows)
    ok(acl.mdl.set_dynamic_batch_size(model_id, datasets[0], index, gear))
    x = np.zeros((gear, 4), np.float32)
    x[:rows] = rows
    data = x.tobytes()
    ok(acl.rt.memcpy(made[0][0], made[0][2], acl.util.bytes_to_ptr(data), len(data), 1))
    ok(acl.mdl.execute(model_id, *datasets))
    shape = ok(acl.mdl.get_cur_output_dims(desc, 0))["dims"]
    y = np.zeros(shape, np.float32)
    ok(acl.rt.memcpy(y.ctypes.data, y.nbytes, made[-1][0], y.nbytes, 2))
    print(rows, gear, y[:rows, 0].tolist())
print("no gear:", acl.mdl.set_dynamic_batch_size(model_id, datasets[0], index, 3))
for ptr, buf, _ in made:
    ok(acl.destroy_data_buffer(buf))
    ok(acl.rt.free(ptr))
for dataset in datasets:
    ok(acl.mdl.destroy_dataset(dataset))
ok(acl.mdl.unload(model_id))
ok(acl.mdl.destroy_desc(desc))
ok(acl.rt.reset_device(0))
ok(acl.finalize())
