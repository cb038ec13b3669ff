#include "train/rank_log.h"

#include "base/error.h"

namespace octet {

RankLog::RankLog(Files& files, const std::string& run, int rank)
    : files_(files),
      ready_(join_path(run, "config.yaml")),
      path_(join_path(run, fmt::format("rank-{:04}.log", rank))) {}

RankLog::~RankLog() {
  write();
}

Log RankLog::log() {
  return Log([this](LogLevel level, const std::string& message) {
    add(level == LogLevel::warning ? "warning: " + message : message);
  });
}

void RankLog::add(const std::string& line) {
  pending_ += line + "\n";
  write();
}

void RankLog::write() {
  if (pending_.empty() || !files_.exists(ready_)) return;
  try {
    if (!file_) {
      if (files_.exists(path_)) files_.remove(path_);  // of an earlier process
      file_ = files_.create(path_);
    }
    file_->write(std::as_bytes(std::span(pending_)));
    pending_.clear();
  } catch (const Error&) {
  }
}

}  // namespace octet
