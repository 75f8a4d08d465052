// Tests of the program as a process of its own: signals, limits, what its terminal gets.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/app/cli_fixture.h"

namespace attnscope {

class ProgramTest : public CliTest {
 protected:
  void TearDown() override {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    CliTest::TearDown();
  }

  // Standard output goes to the file "out", or to `out`; errors to "err". prepare: in the process.
  void start(const std::vector<std::string>& arguments, const std::string& out = {},
             const std::function<void()>& prepare = {}) {
    std::vector<std::string> words = {ATTNSCOPE_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> list;
    for (std::string& word : words) list.push_back(word.data());
    list.push_back(nullptr);
    const std::string to = out.empty() ? path("out") : out, errors = path("err");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
      ::dup2(::open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
      // A shell's background jobs ignore SIGINT, and what they start inherits that.
      ::signal(SIGINT, SIG_DFL);
      if (prepare) prepare();
      ::execv(list[0], list.data());
      ::_exit(127);
    }
    ASSERT_GT(pid_, 0);
  }
  // Whether the program, once it runs, has the signal in a set of its status: "SigCgt" are those
  // that it catches, "SigIgn" those that it ignores.
  bool has_signal(const std::string& set, int number) const {
    // Before that it is a copy of this process, with its handlers.
    std::error_code code;
    const auto runs = std::filesystem::read_symlink("/proc/" + std::to_string(pid_) + "/exe", code);
    if (runs != std::filesystem::canonical(ATTNSCOPE_PROGRAM)) return false;
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (!line.starts_with(set + ":")) continue;
      return (std::stoull(line.substr(set.size() + 1), nullptr, 16) >> (number - 1) & 1) != 0;
    }
    return false;
  }
  void wait_until_it_catches(int number) {
    while (!has_signal("SigCgt", number)) {
      ASSERT_EQ(::waitpid(pid_, nullptr, WNOHANG), 0) << "it ended before: " << read(path("err"));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  // Once the program catches it.
  void signal(int number) {
    ASSERT_NO_FATAL_FAILURE(wait_until_it_catches(number));
    ASSERT_EQ(::kill(pid_, number), 0);
  }
  // Its exit code; -N where signal N ended it.
  int finish() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
  std::string out() const { return read(path("out")); }
  std::string err() const { return read(path("err")); }

  pid_t pid_ = -1;
};

}  // namespace attnscope
