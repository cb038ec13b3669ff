#include "base/temporary_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/base/scratch_folder.h"

namespace octet::base_unfinished_file_test {
namespace {

// Remains of the two files of a process that gets a signal now.
TEST(UnfinishedFile, is_removed_while_it_stands_and_stays_once_it_is_whole) {
  const test::ScratchFolder folder;
  const std::string begun = folder.put("begun", "a"), whole = folder.put("whole", "b");
  const pid_t child = ::fork();
  if (child == 0) {
    const UnfinishedFile unfinished(begun);
    { const UnfinishedFile done(whole); }
    remove_unfinished_files();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_FALSE(posix_files().exists(begun));
  EXPECT_TRUE(posix_files().exists(whole));
}

TEST(UnfinishedFile, more_than_the_list_holds_and_longer_names_do_no_harm) {
  std::vector<std::unique_ptr<UnfinishedFile>> many;
  for (int i = 0; i < 200; ++i) many.push_back(std::make_unique<UnfinishedFile>("none"));
  const UnfinishedFile longest(std::string(10000, 'a'));
}

}  // namespace
}  // namespace octet::base_unfinished_file_test
