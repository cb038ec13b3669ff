#include "cli/commands.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <dnnl.hpp>
#include <filesystem>
#include <fstream>
#include <optional>

#include "backends/cpu/common/isa.h"
#include "backends/cuda/backend.h"
#include "base/error.h"
#include "base/host_memory.h"
#include "base/parse_text.h"
#include "cli/backend.h"
#include "cli/doctor.h"
#include "cli/enum_option.h"
#include "cli/own_texts.h"
#include "library/open_backend.h"

namespace octet {
namespace {

// Value of /proc/cpuinfo for the first processor: "model name", "flags".
std::string cpu_fact(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

Finding find_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int usable = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  return {"cores", true, fmt::format("{} usable, {}", usable, cpu_fact("model name")), ""};
}

Finding find_memory() {
  constexpr double kEnough = 512.0 * 1024 * 1024;  // for the demonstration
  const HostMemory memory = read_host_memory();
  const auto available = static_cast<double>(memory.available_bytes);
  const bool is_enough = available >= kEnough;
  return {
      "memory", is_enough,
      fmt::format("{} available of {}{}", bytes_text(available),
                  bytes_text(static_cast<double>(memory.total_bytes)),
                  memory.limited_by == "machine" ? "" : ", limited by the " + memory.limited_by),
      is_enough ? "" : "free some: even small runs want 512 MiB"};
}

std::vector<Finding> find_isa() {
  struct Row {
    cpu::Isa isa;
    const char* flag;
    const char* use;
  };
  constexpr Row rows[] = {{cpu::Isa::avx2, "avx2", "vectors of 8 floats"},
                          {cpu::Isa::avx512, "avx512f", "vectors of 16 floats"},
                          {cpu::Isa::amx, "amx_tile", "BF16 matrix tiles: the fastest products"}};
  const cpu::Isa best = cpu::detect_isa();
  // True if the processor has it, whether or not it may be used.
  const auto has_flag = [flags = " " + cpu_fact("flags") + " "](const char* flag) {
    return flags.find(fmt::format(" {} ", flag)) != std::string::npos;
  };
  std::vector<Finding> found;
  for (const Row& row : rows) {
    const std::string name(cpu::isa_name(row.isa));
    if (row.isa <= best) {
      found.push_back(
          {name, true,
           fmt::format("{}; --isa {}{}", row.use, name, row.isa == best ? ", what auto takes" : ""),
           ""});
    } else if (has_flag(row.flag)) {
      found.push_back({name, false, "the processor has it, the system does not let it be used",
                       "a newer kernel, or a virtual machine that passes it on"});
    } else {
      found.push_back({name, false, "this processor has none: slower, with the same formats", ""});
    }
  }
  const bool has_bf16 = __builtin_cpu_supports("avx512bf16") != 0;
  found.push_back({"avx512_bf16", has_bf16,
                   has_bf16 ? "BF16 products in vectors" : "this processor has none", ""});
  return found;
}

Finding find_onednn() {
  const dnnl_version_t* version = dnnl_version();
  return {"oneDNN", true, fmt::format("{}.{}.{}", version->major, version->minor, version->patch),
          ""};
}

Finding find_on_path(const std::string& program, const std::string& remedy) {
  const char* path = std::getenv("PATH");
  std::string folders = fmt::format("{}:/usr/local/cuda/bin", path != nullptr ? path : "");
  for (size_t at = 0; at < folders.size();) {
    const size_t colon = std::min(folders.find(':', at), folders.size());
    const std::string file = folders.substr(at, colon - at) + "/" + program;
    if (access(file.c_str(), X_OK) == 0) return {program, true, file, ""};
    at = colon + 1;
  }
  return {program, false, "not on the path", remedy};
}

// The CUDA driver's own answers, through the few entry points that never change.
Finding find_cuda_driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  const std::string remedy = "install NVIDIA's driver; the CPU needs none";
  if (library == nullptr) return {"cuda driver", false, "libcuda.so.1 not found", remedy};
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
  const auto version = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDriverGetVersion"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDeviceGetCount"));
  const auto name = reinterpret_cast<int (*)(char*, int, int)>(dlsym(library, "cuDeviceGetName"));
  if (!init || !version || !count || !name)
    return {"cuda driver", false, "libcuda.so.1 is not a driver", remedy};
  int driver = 0, n_devices = 0;
  version(&driver);
  if (init(0) != 0 || count(&n_devices) != 0 || n_devices == 0) {
    return {"cuda driver", false,
            fmt::format("CUDA {}.{}, no device", driver / 1000, driver % 1000 / 10), remedy};
  }
  char device[256] = {};
  name(device, sizeof(device) - 1, 0);
  return {"cuda driver", true,
          fmt::format("CUDA {}.{}, {} x {}", driver / 1000, driver % 1000 / 10, n_devices, device),
          ""};
}

Finding found_library(const DeviceLibrary& library) {
  const bool is_there = library.problem.empty();
  return {library.name, is_there, is_there ? library.version : library.problem,
          is_there ? ""
          : library.name == "NCCL"
              ? "OCTET_NCCL=FILE, or NVIDIA's nvidia-nccl-cu13; one host needs none"
              : "install NVIDIA's libcudnn9-cuda-13, then `make cuda` again"};
}

// The library that holds the GPU's kernels, and whether it opens and finds a GPU that it can use;
// then the libraries that it uses.
std::vector<Finding> find_cuda_module() {
  const std::string path = cuda_module_path();
  if (!std::filesystem::exists(path)) {
    return {{"cuda module", false, "liboctet_cuda.so is not beside the program",
             "`make cuda`, where nvcc is; the CPU needs none"}};
  }
  try {
    const Backend backend =
        cuda::make_backend({.module = path, .n_threads = 1, .nccl = nccl_file()});
    const DeviceInfo info = backend.device->info();
    std::vector<Finding> found = {{"cuda module", true,
                                   fmt::format("--device cuda: {}, {}", info.name,
                                               bytes_text(static_cast<double>(info.memory_bytes))),
                                   ""}};
    for (const DeviceLibrary& library : backend.device->libraries())
      found.push_back(found_library(library));
    found.push_back(found_library(backend.device->rank_library()));
    return found;
  } catch (const Error& error) {
    const bool lacks_library =
        std::string_view(error.what()).find("libcublas") != std::string::npos;
    return {{"cuda module", false, error.what(),
             lacks_library
                 ? "install NVIDIA's CUDA 13 toolkit, or nvidia-cublas by the pip of a wheel"
                 : "`make cuda` again, or NVIDIA's driver"}};
  }
}

Finding find_disk() {
  struct statvfs info {};
  if (statvfs(".", &info) != 0)
    return {"disk", false, "this folder cannot be read", "choose another folder"};
  const double free_bytes = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  constexpr double kEnough = 2.0 * 1024 * 1024 * 1024;
  return {"disk", free_bytes >= kEnough, bytes_text(free_bytes) + " free in this folder",
          free_bytes >= kEnough ? "" : "checkpoints may not fit: set `out` to a larger disk"};
}

Finding find_text() {
  for (const std::string& path : own_texts()) {
    if (std::filesystem::is_directory(path) && !std::filesystem::is_empty(path))
      return {"text for `octet compare`", true, path, ""};
  }
  return {"text for `octet compare`", false, "no documents and no headers",
          "sudo apt-get install build-essential, or name texts by --data"};
}

std::vector<Finding> all_findings() {
  std::vector<Finding> found = {find_cores(), find_memory()};
  for (const Finding& isa : find_isa()) found.push_back(isa);
  found.push_back(find_onednn());
  found.push_back(find_cuda_driver());
  for (const Finding& module : find_cuda_module()) found.push_back(module);
  found.push_back(
      find_on_path("nvcc", "install NVIDIA's CUDA toolkit, then `make cuda`; the CPU needs none"));
  found.push_back(find_on_path("g++", "sudo apt-get install build-essential"));
  found.push_back(find_on_path("clang++-14", "make setup (for ./dev check)"));
  found.push_back(find_disk());
  found.push_back(find_text());
  return found;
}

// True if the device cannot do without `what`.
bool is_needed(const std::string& what, const std::string& device) {
  if (what == "memory" || what == "disk") return true;
  return device == "cuda" && (what == "cuda driver" || what == "cuda module");
}

// Needs that are missing for a device, as "memory, disk"; empty: it is ready.
std::string missing_for(const std::string& device, const std::vector<Finding>& found) {
  std::string missing;
  for (const Finding& finding : found) {
    if (finding.is_there || !is_needed(finding.what, device)) continue;
    missing += (missing.empty() ? "" : ", ") + finding.what;
  }
  return missing;
}

std::string verdict(const std::string& device, const std::vector<Finding>& found) {
  const std::string missing = missing_for(device, found);
  const std::string flag = device == "cpu" ? "" : " --device " + device;
  if (missing.empty()) return fmt::format("{}: ready, `octet train CONFIG{}`\n", device, flag);
  return fmt::format("{}: not ready, lacks {}\n", device, missing);
}

void show(const GlobalOptions& options, const std::vector<Finding>& found) {
  Table table{{"what", "there", "needed", "detail", "remedy"}, {}};
  for (const Finding& finding : found) {
    const bool needed = is_needed(finding.what, options.device);
    table.rows.push_back({finding.what, finding.is_there ? "yes" : "no", needed ? "yes" : "",
                          finding.detail, finding.remedy});
  }
  print_table(options, table);
}

// "": as a launcher started them.
int rank_number(const std::string& text) {
  if (text.empty()) return 0;
  const auto n = parse_number<int>(text);
  if (n && *n >= 2 && *n <= 64) return *n;
  throw Error(ErrorCode::invalid_argument,
              "[doctor] --ranks: expected a number from 2 to 64, or none, got {}", text);
}

void run_doctor(const GlobalOptions& options, const std::optional<std::string>& ranks) {
  if (ranks) {
    const int code = doctor_ranks(options, rank_number(*ranks),
                                  [&](const auto& found) { show(options, found); });
    finish_output();
    if (code != 0) throw ExitStatus{code};
    return;
  }
  const std::vector<Finding> found = all_findings();
  show(options, found);
  if (!options.json) write_out("\n" + verdict("cpu", found) + verdict("cuda", found));
  finish_output();
  if (!missing_for(options.device, found).empty()) throw ExitStatus{exit_code(ErrorCode::device)};
}

}  // namespace

void add_doctor_command(CLI::App& app, GlobalOptions& options) {
  auto ranks = std::make_shared<std::string>(), proved = std::make_shared<std::string>();
  CLI::App* doctor =
      app.add_subcommand("doctor", "say what this machine offers and what is missing");
  doctor->footer(
      "Exit codes: 0 where --device (the CPU, unless another is named) can train; 5 where "
      "something\nthat it needs is missing, ranks do not reach each other, or a kernel computes "
      "something else than\nits reference.");
  doctor
      ->add_option("--ranks", *ranks,
                   "started as a run is (mpirun, srun, torchrun's variables): who the ranks are, "
                   "where, whether they reach each other and how fast, on GPUs every collective "
                   "verified; else what would start them; N: of N processes started here")
      ->expected(0, 1)
      ->type_name("N");
  doctor
      ->add_option("--prove", *proved,
                   "each kernel of this run, at small and ragged sizes, against the reference "
                   "kernels of the CPU")
      ->type_name("CONFIG")
      ->excludes("--ranks");
  auto arithmetic = std::make_shared<std::optional<Arithmetic>>();
  add_enum_option(*doctor, "--arithmetic", *arithmetic,
                  "with --prove: whose sums the reference makes; the device's, where a rule of its "
                  "tensor cores is known")
      ->needs("--prove");
  doctor->callback([doctor, ranks, proved, arithmetic, &options] {
    const bool proves = !proved->empty(), has_ranks = doctor->count("--ranks") > 0;
    expect_flags_read(*doctor, {{"--set", proves || has_ranks, "--prove or --ranks"},
                                {"--seed", proves, "--prove"}});
    if (proves) return doctor_prove(options, *proved, *arithmetic);
    run_doctor(options, has_ranks ? std::optional(*ranks) : std::nullopt);
  });
}

}  // namespace octet
