#include "base/host_memory.h"

#include <gtest/gtest.h>

#include "unit/base/scratch_folder.h"

namespace octet::base_host_memory_test {
namespace {

using test::ScratchFolder;

constexpr const char* kMeminfo =
    "MemTotal:        8000 kB\nMemFree:         1000 kB\nMemAvailable:    6000 kB\n";

TEST(HostMemory, of_a_machine_without_limits_is_what_the_kernel_says) {
  const ScratchFolder folder;
  folder.put("proc/meminfo", kMeminfo);
  const HostMemory memory = read_host_memory(folder.path());
  EXPECT_EQ(memory.total_bytes, 8000 * 1024);
  EXPECT_EQ(memory.available_bytes, 6000 * 1024);
  EXPECT_EQ(memory.limited_by, "machine");
}

// Without /proc: what cannot be read limits nothing.
TEST(HostMemory, of_a_machine_that_does_not_say_it_is_all_that_it_has) {
  const HostMemory memory = read_host_memory(ScratchFolder().path());
  EXPECT_GE(memory.total_bytes, int64_t{64} << 20);
  EXPECT_EQ(memory.available_bytes, memory.total_bytes);
  EXPECT_EQ(memory.limited_by, "machine");
}

TEST(HostMemory, group_of_version_2_limits_it_and_dropped_pages_count_as_free) {
  const ScratchFolder folder;
  folder.put("proc/meminfo", kMeminfo);
  folder.put("proc/self/cgroup", "0::/user/run\n");
  folder.put("sys/fs/cgroup/user/run/memory.max", "max\n");
  folder.put("sys/fs/cgroup/user/run/memory.current", "77\n");
  folder.put("sys/fs/cgroup/user/memory.max", "1000000\n");
  folder.put("sys/fs/cgroup/user/memory.current", "400000\n");
  folder.put("sys/fs/cgroup/user/memory.stat", "anon 1\ninactive_file 50000\nfile 3\n");
  const HostMemory memory = read_host_memory(folder.path());
  EXPECT_EQ(memory.total_bytes, 1000000);
  EXPECT_EQ(memory.available_bytes, 650000);
  EXPECT_EQ(memory.limited_by, "control group");
}

TEST(HostMemory, group_of_version_1_is_found_where_its_path_is_the_hosts) {
  const ScratchFolder folder;
  folder.put("proc/meminfo", kMeminfo);
  folder.put("proc/self/cgroup", "3:cpu:/a\n4:hugetlb,memory:/box/17\n");
  folder.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n");
  folder.put("sys/fs/cgroup/memory/memory.usage_in_bytes", "1500000\n");
  folder.put("sys/fs/cgroup/memory/memory.stat", "inactive_file 9\ntotal_inactive_file 100000\n");
  const HostMemory memory = read_host_memory(folder.path());
  EXPECT_EQ(memory.total_bytes, 2000000);
  EXPECT_EQ(memory.available_bytes, 600000);
}

TEST(HostMemory, more_used_than_allowed_leaves_nothing) {
  const ScratchFolder folder;
  folder.put("proc/meminfo", kMeminfo);
  folder.put("proc/self/cgroup", "0::/\n");
  folder.put("sys/fs/cgroup/memory.max", "1000\n");
  folder.put("sys/fs/cgroup/memory.current", "5000\n");
  EXPECT_EQ(read_host_memory(folder.path()).available_bytes, 0);
}

TEST(HostMemory, this_machine_has_some) {
  const HostMemory memory = read_host_memory();
  EXPECT_GT(memory.available_bytes, 1 << 20);
  EXPECT_LE(memory.available_bytes, memory.total_bytes);
}

}  // namespace
}  // namespace octet::base_host_memory_test
