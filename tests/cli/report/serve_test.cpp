// octet report --serve: the page and its data over HTTP, while a run is written.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "cli/report/report_runs.h"

namespace octet::report_serve_test {
namespace {

using test::ScratchFolder;
using test::write_run;
using testing::HasSubstr;
using testing::StartsWith;

// `octet report ARGUMENTS --serve 0`, from its address on.
class ReportServer {
 public:
  explicit ReportServer(const std::string& arguments) {
    int ends[2];
    if (::pipe(ends) != 0) return;
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      const std::string command =
          "exec timeout 60 " OCTET_PROGRAM " report " + arguments + " --serve 0 2>/dev/null";
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    std::string line;
    for (char ch = 0; ::read(ends[0], &ch, 1) == 1 && ch != '\n';) line += ch;
    ::close(ends[0]);
    const std::string begin = "http://127.0.0.1:";
    if (line.starts_with(begin)) port_ = std::stoi(line.substr(begin.size()));
  }
  ~ReportServer() {
    if (child_ <= 0) return;  // there is none; -1 is everybody
    ::kill(child_, SIGTERM);
    ::waitpid(child_, nullptr, 0);
  }
  int port() const { return port_; }

  // The whole answer; "" where there is none.
  std::string get(const std::string& path, const std::string& host = "") const {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::string answer;
    if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      const std::string own = "127.0.0.1:" + std::to_string(port_);
      const std::string request = "GET " + path +
                                  " HTTP/1.1\r\nHost: " + (host.empty() ? own : host) +
                                  "\r\nConnection: close\r\n\r\n";
      char part[4096];
      if (::send(socket, request.data(), request.size(), MSG_NOSIGNAL) > 0)
        for (ssize_t n = 0; (n = ::recv(socket, part, sizeof part, 0)) > 0;)
          answer.append(part, static_cast<size_t>(n));
    }
    ::close(socket);
    return answer;
  }
  nlohmann::json data(const std::string& path = "/data.json") const {
    const std::string answer = get(path);
    return nlohmann::json::parse(answer.substr(answer.find("\r\n\r\n") + 4), nullptr, false);
  }

 private:
  pid_t child_ = -1;
  int port_ = 0;
};

void append_to_metrics(const ScratchFolder& folder, const std::string& text) {
  std::ofstream(folder / "a/metrics.jsonl", std::ios::app) << text;
}

TEST(ReportServe, the_page_may_ask_its_server_and_nobody_else) {
  const ScratchFolder folder;
  const ReportServer server(write_run(folder, "a", 3));
  ASSERT_GT(server.port(), 0);
  const std::string page = server.get("/");
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(page, HasSubstr("script-src 'unsafe-inline'; connect-src 'self'\""));
  EXPECT_EQ(test::script_data(page).at("version"), 1);
  EXPECT_THAT(server.get("/", "example.org"), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(server.get("/metrics.jsonl"), StartsWith("HTTP/1.1 404"));
}

TEST(ReportServe, follows_ended_lines_of_a_run_and_says_when_there_is_nothing_new) {
  const ScratchFolder folder;
  const ReportServer server(write_run(folder, "a", 3));
  ASSERT_GT(server.port(), 0);
  EXPECT_THAT(server.get("/data.json?after=1"), StartsWith("HTTP/1.1 204"));
  append_to_metrics(folder, R"({"step":4,"loss":0.5,"tok)");
  EXPECT_THAT(server.get("/data.json?after=1"), StartsWith("HTTP/1.1 204"));
  append_to_metrics(folder, "ens\":256}\n");
  const nlohmann::json data = server.data("/data.json?after=1");
  EXPECT_EQ(data.at("version"), 2);
  EXPECT_EQ(data.at("runs")[0].at("axes").at("step"), (nlohmann::json{1, 2, 3, 4}));
  EXPECT_EQ(data.at("runs")[0].at("curves").at("loss").at("y")[3], 0.5);
}

// Whoever sees a step's line finds its samples.
TEST(ReportServe, follows_what_the_model_writes) {
  const ScratchFolder folder;
  const ReportServer server(write_run(folder, "a", 3));
  ASSERT_GT(server.port(), 0);
  folder.put("a/samples.jsonl", R"({"step":4,"prompt":"Once","text":" upon","stop":"length"})"
                                "\n");
  append_to_metrics(folder, R"({"step":4,"loss":0.5,"tokens":256})"
                            "\n");
  const nlohmann::json samples = server.data("/data.json?after=1").at("samples");
  EXPECT_EQ(samples.at("runs")[0].at("rows")[0].at("texts")[0], " upon ...");
}

// Rewritten as by --resume, which drops the lines behind the checkpoint's step; then the new lines
// are as long as the old ones were.
TEST(ReportServe, a_run_that_was_taken_up_again_is_read_anew) {
  const ScratchFolder folder;
  const ReportServer server(write_run(folder, "a", 5));
  ASSERT_GT(server.port(), 0);
  write_run(folder, "a", 5, [](nlohmann::json& line) {
    if (line.at("step") == 5) line["loss"] = 7.0;
  });
  EXPECT_EQ(server.data().at("runs")[0].at("curves").at("loss").at("y")[4], 7.0);
  write_run(folder, "a", 2);
  EXPECT_EQ(server.data().at("runs")[0].at("steps"), 2);
}

TEST(ReportServe, of_a_run_in_the_place_of_another_nothing_of_that_one_stays) {
  const ScratchFolder folder;
  write_run(folder, "a", 5);
  const std::string samples =
      folder.put("a/samples.jsonl", R"({"step":4,"prompt":"a","text":"b","stop":"length"})"
                                    "\n");
  const ReportServer server(folder / "a");
  ASSERT_GT(server.port(), 0);
  EXPECT_EQ(server.data().at("samples").at("runs").size(), 1u);
  ASSERT_EQ(std::remove(samples.c_str()), 0);
  write_run(folder, "a", 2);
  EXPECT_EQ(server.data().at("samples").at("runs").size(), 0u);
}

TEST(ReportServe, of_a_run_that_has_gone_it_shows_what_it_had) {
  const ScratchFolder folder;
  const ReportServer server(write_run(folder, "a", 3));
  ASSERT_GT(server.port(), 0);
  ASSERT_EQ(std::remove((folder / "a/metrics.jsonl").c_str()), 0);
  EXPECT_EQ(server.data().at("runs")[0].at("steps"), 3);
}

TEST(ReportServe, what_is_no_port_or_no_run_is_an_error) {
  const ScratchFolder folder;
  const std::string run = write_run(folder, "a", 3);
  for (const char* port : {"65536", "-1", "x", "80a"}) {
    const test::Outcome outcome = test::program(folder, "report " + run + " --serve=" + port);
    EXPECT_EQ(outcome.code, 2) << port;
    EXPECT_THAT(outcome.err, HasSubstr("expected a port in [0, 65535]")) << port;
  }
  EXPECT_EQ(test::program(folder, "report " + (folder / "none") + " --serve 0").code, 3);
  EXPECT_EQ(test::program(folder, "report " + run + " --serve 0 --out page.html").code, 2);
  const ReportServer server(run);
  EXPECT_EQ(
      test::program(folder, "report " + run + " --serve " + std::to_string(server.port())).code, 3);
}

}  // namespace
}  // namespace octet::report_serve_test
