#include "cli/doctor_command.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <dnnl.hpp>
#include <filesystem>
#include <fstream>

#include "backends/cpu/isa.h"

namespace octet {
namespace {

// One thing that was looked at.
struct Finding {
  std::string what;
  bool is_there = false;
  std::string detail;
  std::string remedy;  // what to do when it is missing; empty: nothing can or need be done
};

// Memory the process may use: the machine's, or less under a control group.
double usable_memory_bytes() {
  double bytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    double limit = 0;
    if (file >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

double available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name, rest;
  double kibibytes = 0;
  while (file >> name >> kibibytes && std::getline(file, rest)) {
    if (name == "MemAvailable:") return kibibytes * 1024;
  }
  return 0;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

Finding find_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int usable = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  return {"cores", true, fmt::format("{} usable, {}", usable, cpu_name()), ""};
}

Finding find_memory() {
  const double usable = usable_memory_bytes();
  return {"memory", true,
          fmt::format("{}, {} available now", bytes_text(usable),
                      bytes_text(std::min(usable, available_memory_bytes()))),
          ""};
}

std::vector<Finding> find_isa() {
  const cpu::Isa best = cpu::detect_isa();
  std::vector<Finding> found;
  const auto add = [&](const std::string& name, bool is_there, const std::string& use) {
    found.push_back({name, is_there, is_there ? use : "this processor has none; slower", ""});
  };
  for (const cpu::Isa isa : {cpu::Isa::avx2, cpu::Isa::avx512, cpu::Isa::amx}) {
    const std::string name(cpu::isa_name(isa));
    add(name, isa <= best, fmt::format("--isa {}{}", name, isa == best ? ", what auto takes" : ""));
  }
  add("avx512_bf16", __builtin_cpu_supports("avx512bf16") != 0, "BF16 products in vectors");
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
  const bool is_there = std::filesystem::is_directory("/usr/include/c++");
  return {"text for the demonstration", is_there,
          is_there ? "/usr/include" : "no headers under /usr/include",
          is_there ? "" : "sudo apt-get install build-essential"};
}

std::vector<Finding> all_findings() {
  std::vector<Finding> found = {find_cores(), find_memory()};
  for (const Finding& isa : find_isa()) found.push_back(isa);
  found.push_back(find_onednn());
  found.push_back(find_cuda_driver());
  found.push_back(
      find_on_path("nvcc", "install NVIDIA's CUDA toolkit, then `make cuda`; the CPU needs none"));
  found.push_back(find_on_path("g++", "sudo apt-get install build-essential"));
  found.push_back(find_on_path("clang++-14", "make setup (for ./dev check)"));
  found.push_back(find_disk());
  found.push_back(find_text());
  return found;
}

void run_doctor(const GlobalOptions& options) {
  Table table{{"what", "there", "detail", "remedy"}, {}};
  for (const Finding& finding : all_findings()) {
    table.rows.push_back(
        {finding.what, finding.is_there ? "yes" : "no", finding.detail, finding.remedy});
  }
  print_table(options, table);
}

}  // namespace

void add_doctor_command(CLI::App& app, GlobalOptions& options) {
  app.add_subcommand("doctor", "say what this machine offers and what is missing")
      ->callback([&options] { run_doctor(options); });
}

}  // namespace octet
