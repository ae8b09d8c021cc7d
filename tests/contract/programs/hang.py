# ruff: noqa: T201 - in the style of public samples
"""A model that never ends, waited for until somebody presses Ctrl-C."""

import sys

import acl

acl.init()
acl.rt.set_device(0)
stream, ret = acl.rt.create_stream()
model_id, ret = acl.mdl.load_from_file(sys.argv[1])
desc = acl.mdl.create_desc()
acl.mdl.get_desc(desc, model_id)
size = acl.mdl.get_input_size_by_index(desc, 0)
datasets = []
for _ in range(2):
    ptr, ret = acl.rt.malloc(size, 0)
    dataset = acl.mdl.create_dataset()
    acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(ptr, size))
    datasets.append(dataset)
try:
    if sys.argv[2] == "execute":
        print("begins", flush=True)
        acl.mdl.execute(model_id, *datasets)
    else:
        acl.mdl.execute_async(model_id, *datasets, stream)
        print("begins", flush=True)
        acl.rt.synchronize_stream(stream)
except KeyboardInterrupt:
    print("interrupted", acl.rt.destroy_stream_force(stream))
    sys.exit(130)
