// Texts that tests compare with a file of tests/golden, to the letter. After a change that is meant
// OCTET_UPDATE_GOLDEN=1 writes them anew. A test that was carried to another machine finds its
// files in tests/golden of the working directory.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/files.h"

namespace octet::test {

inline std::string golden_path(const std::string& name) {
  const std::string source = OCTET_SOURCE_DIR "/tests/golden/";
  return (std::filesystem::is_directory(source) ? source : "tests/golden/") + name;
}

inline bool updates_golden() {
  return std::getenv("OCTET_UPDATE_GOLDEN") != nullptr;
}

// The recorded text, or `now` where it was just recorded; empty where there is no file.
inline std::string golden_text(const std::string& name, const std::string& now) {
  const std::string path = golden_path(name);
  if (updates_golden()) write_atomically(posix_files(), path, now);
  return std::filesystem::exists(path) ? posix_files().read_text(path) : "";
}

inline void expect_golden(const std::string& name, const std::string& now) {
  EXPECT_EQ(golden_text(name, now), now)
      << "where the change is meant: OCTET_UPDATE_GOLDEN=1 and this program";
}

}  // namespace octet::test
