# ruff: noqa: T201 - in the style of public samples
"""Timing with events and two streams, as benchmarks do."""

import sys

import acl

acl.init()
acl.rt.set_device(0)
compute, _ = acl.rt.create_stream()
copy, _ = acl.rt.create_stream()
start, _ = acl.rt.create_event()
end, _ = acl.rt.create_event()
copied, _ = acl.rt.create_event_with_flag(1)
model_id, ret = acl.mdl.load_from_file(sys.argv[1])
if ret:
    sys.exit(f"load: {ret} {acl.get_recent_err_msg()}")
desc = acl.mdl.create_desc()
acl.mdl.get_desc(desc, model_id)
size = acl.mdl.get_input_size_by_index(desc, 0)
host, _ = acl.rt.malloc_host(size)
pointers = [acl.rt.malloc(size, 0)[0] for _ in range(2)]
datasets = []
for ptr in pointers:
    dataset = acl.mdl.create_dataset()
    acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(ptr, size))
    datasets.append(dataset)
acl.rt.memcpy_async(pointers[0], size, host, size, 1, copy)
acl.rt.record_event(copied, copy)
acl.rt.stream_wait_event(compute, copied)
acl.rt.record_event(start, compute)
for _ in range(5):
    ret = acl.mdl.execute_async(model_id, *datasets, compute)
    assert ret == 0
acl.rt.record_event(end, compute)
acl.rt.synchronize_stream(compute)
elapsed, ret = acl.rt.event_elapsed_time(start, end)
assert ret == 0
print(int(elapsed / 5), "ms")
for event in (start, end, copied):
    acl.rt.destroy_event(event)
for dataset in datasets:
    acl.destroy_data_buffer(acl.mdl.get_dataset_buffer(dataset, 0))
    acl.mdl.destroy_dataset(dataset)
for ptr in pointers:
    acl.rt.free(ptr)
acl.rt.free_host(host)
acl.mdl.unload(model_id)
acl.mdl.destroy_desc(desc)
acl.rt.destroy_stream(compute)
acl.rt.destroy_stream(copy)
acl.rt.reset_device(0)
acl.finalize()
