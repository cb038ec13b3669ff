// The machine that computes: the CPU or a GPU.
#pragma once

#include <cstdint>
#include <string>

namespace octet {

struct MachineOptions {
  std::string device = "cpu";  // cpu, cuda
  // The CPU's kernels: scalar, avx2, avx512, amx; auto: the best that this machine has. One choice
  // a process, but for scalar.
  std::string isa = "auto";
  int threads = 0;               // of the host; 0: one per core that this process may use
  int device_index = 0;          // of the host's GPUs
  std::string cuda_module = {};  // path of liboctet_cuda.so; empty: beside the program, then in
                                 // cuda/ beside it
};

// A small value: each Training and each Model opens what it says for itself, and so shares no
// memory and no threads with others.
class Machine {
 public:
  // Opens the device once to see that it is there. Throws Error{invalid_argument} for unknown
  // names, for instructions that the machine lacks, and for an instruction set other than the one
  // that this process computes with already; Error{device} where there is no module or no GPU.
  explicit Machine(const MachineOptions& options = {});

  const MachineOptions& options() const { return options_; }
  const std::string& name() const { return name_; }       // "cpu (avx512)", or the GPU's
  int64_t memory_bytes() const { return memory_bytes_; }  // that one may plan with

 private:
  MachineOptions options_;
  std::string name_;
  int64_t memory_bytes_ = 0;
};

}  // namespace octet
