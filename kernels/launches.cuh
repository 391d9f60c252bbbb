// Launches that begin before the one before has ended ("programmatic dependent launch", from compute
// capability 9.0 on).
//
// Between two launches of a stream the device stands still for a microsecond or two, and blocks that are done
// early leave multiprocessors without work. A kernel that calls let_next_begin() lets blocks of the next
// launch take what its own have left, as soon as all of its own have begun. The next launch does so if the
// host asks for it (`Module::early_kernel` in crates/lockon-cuda/src/driver/module.rs); then in every block
// at least one thread calls wait_for_launches_before(), and each thread before it writes to global memory.
//
// Before that call, a thread writes nothing but shared memory, and reads only what no launch writes that may
// still run: what copies brought before these launches, as frames are, or what the host waited for, as
// prepared templates are. A block that has called it ends after all launches before; so whatever follows in
// the ordinary way follows these too.
//
// Oracle: work_that_follows_without_a_pause_finds_what_it_finds_alone (crates/lockon-cuda/src/tests.rs) and
// kernels_that_begin_early_wait_before_they_write (crates/lockon-cuda/src/threshold/tests.rs), which reads
// the PTX.
#pragma once

// Both do nothing where there is no such thing.
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void wait_for_launches_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
