// The training data of a configuration, entry by entry of data.train: what kind each is of, and how
// often an epoch reads it.
#pragma once

#include <string>
#include <vector>

#include "base/files.h"
#include "config/run_config.h"
#include "data/chat_dataset.h"
#include "data/dataset.h"
#include "text/tokenizer.h"

namespace octet {

struct DataEntry {
  std::vector<std::string> paths = {};
  bool is_chat = false;
  double weight = 1;
  TokenStream stream = {};
  ChatData chat = {};  // of conversations
};

// True if a path holds conversations, where the configuration has a template for them: JSON by its
// name or its first bytes, a folder with such names, or what can be read only once.
bool holds_conversations(const Files& files, const std::string& path);

// Conversations alone that are all read once are one entry, as is text; else each path is one. None
// is read yet.
std::vector<DataEntry> find_entries(const Files& files, const RunConfig& config,
                                    const std::vector<std::string>& paths,
                                    const std::vector<double>& weights = {});

// All of them, without weights where these are all 1.
TokenStream join_entries(const std::vector<DataEntry>& entries);

// The first token that is held out at the end of an entry: the last records whole, or documents.
int64_t held_out_start(const DataEntry& entry, double fraction, HoldOut how);

}  // namespace octet
