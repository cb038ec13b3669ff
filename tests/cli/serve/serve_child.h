// `octet serve` as a child, and a client of it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cli/signals/child.h"
#include "unit/base/scratch_folder.h"

namespace octet::test {

// The program that serves a model of the folder, on a free port.
class ServeChild {
 public:
  ServeChild(const ScratchFolder& folder, const std::string& model,
             const std::vector<std::string>& more = {})
      : child_(folder, arguments(folder, model, more),
               [] { ::dup2(::open("serve.txt", O_WRONLY | O_CREAT | O_TRUNC, 0666), 1); }) {
    for (int i = 0; i < 4000 && child_.is_running(); ++i) {
      const std::string line = posix_files().exists(folder / "serve.txt")
                                   ? posix_files().read_text(folder / "serve.txt")
                                   : "";
      if (line.ends_with('\n')) {
        const std::string url = nlohmann::json::parse(line)["url"];
        port_ = std::stoi(url.substr(url.rfind(':') + 1));
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_GT(port_, 0) << posix_files().read_text(folder / "err.txt");
    client_ = std::make_unique<httplib::Client>("127.0.0.1", port_);
    client_->set_read_timeout(60);
  }

  httplib::Client& client() { return *client_; }
  Child& child() { return child_; }
  int port() const { return port_; }

  httplib::Result post(const std::string& path, const nlohmann::json& body) {
    return client_->Post("/v1/" + path, body.dump(), "application/json");
  }
  nlohmann::json answer(const std::string& path, const nlohmann::json& body) {
    const auto result = post(path, body);
    EXPECT_TRUE(result) << path;
    if (!result) return {};
    EXPECT_EQ(result->status, 200) << result->body;
    return nlohmann::json::parse(result->body);
  }
  // The JSON of each event; [DONE] comes last, once.
  std::vector<nlohmann::json> events(const std::string& path, nlohmann::json body) {
    body["stream"] = true;
    const auto result = post(path, body);
    EXPECT_TRUE(result && result->status == 200);
    if (!result) return {};
    EXPECT_EQ(result->get_header_value("Content-Type"), "text/event-stream");
    std::vector<nlohmann::json> all;
    std::istringstream lines(result->body);
    for (std::string line; std::getline(lines, line);) {
      if (line.empty()) continue;
      EXPECT_EQ(line.substr(0, 6), "data: ");
      all.push_back(line == "data: [DONE]" ? nlohmann::json()
                                           : nlohmann::json::parse(line.substr(6)));
    }
    EXPECT_EQ(std::count(all.begin(), all.end(), nlohmann::json()), 1);
    EXPECT_TRUE(all.back().is_null());
    all.pop_back();
    return all;
  }

 private:
  static std::vector<std::string> arguments(const ScratchFolder& folder, const std::string& model,
                                            const std::vector<std::string>& more) {
    std::filesystem::remove(folder / "serve.txt");  // of another one
    std::vector<std::string> all = {"serve",  "--model", model,       "--port", "0",
                                    "--json", "--quiet", "--threads", "2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  Child child_;
  int port_ = 0;
  std::unique_ptr<httplib::Client> client_;
};

}  // namespace octet::test
