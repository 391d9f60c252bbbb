// Launches that begin before the one before has ended ("programmatic dependent launch", from compute
// capability 9.0 on).
//
// Between two launches of a stream the device stands still for a microsecond or two, and blocks that are done
// early leave multiprocessors without work. A kernel that calls let_next_begin() lets blocks of the next
// launch use multiprocessors that its own blocks have left, as soon as all of its own have begun. The next
// launch does so if the host asks for it (`Module::early_kernel` in crates/lockon-cuda/src/driver/module.rs);
// then in every block at least one thread calls wait_for_launches_before(), and each thread before it writes
// to global memory.
//
// Before that call, a thread writes only shared memory, and reads only data that no running launch may write:
// data from copies before these launches, such as frames, or data that the host waited for, such as prepared
// templates. A block that has called it ends after all launches before; so work that follows in the ordinary
// way follows these too.
//
// Oracle: work_that_follows_without_a_pause_finds_what_it_finds_alone (crates/lockon-cuda/src/tests.rs) and
// kernels_that_begin_early_wait_before_they_write (crates/lockon-cuda/src/threshold/tests.rs), which reads
// the PTX.
#pragma once

// Both do nothing on devices without such launches.
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
