#include "base/host_memory.h"

#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string_view>

namespace octet {
namespace {

std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (file >> value && value >= 0) return value;
  return std::nullopt;  // not there, or "max"
}

// The number behind `key` in a file of lines "key number".
int64_t keyed_number(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string name, rest;
  for (int64_t value = 0; file >> name >> value; std::getline(file, rest)) {
    if (name == key) return value;
  }
  return 0;
}

// Memory of the machine, where /proc does not say it.
int64_t installed_bytes() {
  struct sysinfo info {};
  if (::sysinfo(&info) != 0) return 0;
  return static_cast<int64_t>(info.totalram) * static_cast<int64_t>(info.mem_unit);
}

// Mount and file names of one version of control groups.
struct CgroupFiles {
  std::string mount, limit, usage, droppable;
};

class Limits {
 public:
  explicit Limits(const std::string& root) : root_(root) {
    const std::string meminfo = root_ + "/proc/meminfo";
    memory_.total_bytes = keyed_number(meminfo, "MemTotal:") * 1024;
    memory_.available_bytes = keyed_number(meminfo, "MemAvailable:") * 1024;
    if (memory_.total_bytes == 0) {
      memory_.total_bytes = memory_.available_bytes = installed_bytes();
    }
    memory_.limited_by = "machine";
  }

  void apply(int64_t total, int64_t available, const char* by) {
    memory_.total_bytes = std::min(memory_.total_bytes, total);
    if (available >= memory_.available_bytes) return;
    memory_.available_bytes = std::max<int64_t>(available, 0);
    memory_.limited_by = by;
  }

  // The group and all that hold it: inside a container the path may be the host's, and only the
  // mount's own folder is there.
  void apply_cgroup(const CgroupFiles& files, std::string path) {
    while (true) {
      const std::string folder = root_ + files.mount + (path == "/" ? "" : path) + "/";
      const auto limit = number_in(folder + files.limit);
      const auto usage = number_in(folder + files.usage);
      if (limit && usage) {
        const int64_t droppable = keyed_number(folder + "memory.stat", files.droppable);
        apply(*limit, *limit - *usage + droppable, "control group");
      }
      if (path.empty() || path == "/") return;
      path.resize(path.rfind('/'));
    }
  }

  void apply_address_space() {
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    const int64_t n_pages = number_in("/proc/self/statm").value_or(0);
    const auto total = static_cast<int64_t>(limit.rlim_cur);
    apply(total, total - n_pages * sysconf(_SC_PAGESIZE), "ulimit");
  }

  const HostMemory& memory() const { return memory_; }

 private:
  std::string root_;
  HostMemory memory_;
};

}  // namespace

HostMemory read_host_memory(const std::string& root) {
  const CgroupFiles version1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                "memory.usage_in_bytes", "total_inactive_file"};
  const CgroupFiles version2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};
  Limits limits(root);
  std::ifstream groups(root + "/proc/self/cgroup");  // lines "number:controllers:path"
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (!path.starts_with('/')) continue;
    if (controllers.empty()) limits.apply_cgroup(version2, path);
    if (("," + controllers + ",").find(",memory,") != std::string::npos)
      limits.apply_cgroup(version1, path);
  }
  if (root.empty()) limits.apply_address_space();
  return limits.memory();
}

int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string name; status >> name;) {
    int64_t kibibytes = 0;
    if (name == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  }
  rusage usage{};  // knows no reset
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

void reset_peak_resident_bytes() {
  std::ofstream("/proc/self/clear_refs") << "5";  // proc(5): resets the peak
}

}  // namespace octet
