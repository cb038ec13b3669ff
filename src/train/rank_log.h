// The log of a rank that does not print: rank-000N.log in the run's folder.
#pragma once

#include <memory>
#include <string>

#include "base/files.h"
#include "base/log.h"

namespace octet {

class RankLog {
 public:
  // Nothing is written before rank 0 has made the folder's config.yaml.
  RankLog(Files& files, const std::string& run, int rank);
  ~RankLog();
  RankLog(const RankLog&) = delete;
  RankLog& operator=(const RankLog&) = delete;

  // Lines to this log, which must outlive it. A log that cannot be written is no error.
  Log log();

 private:
  void add(const std::string& line);
  void write();

  Files& files_;
  std::string ready_, path_, pending_;
  std::unique_ptr<FileWriter> file_;
};

}  // namespace octet
