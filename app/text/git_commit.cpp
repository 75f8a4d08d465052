#include "app/text/git_commit.h"

#include <filesystem>
#include <fstream>

#include "app/text/text.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return std::string(trimmed(line));
}

// What follows `prefix` in a line that begins with it.
std::string after(const std::string& line, const std::string& prefix) {
  return line.starts_with(prefix) ? std::string(trimmed(line.substr(prefix.size())))
                                  : std::string();
}

bool is_commit(const std::string& text) {
  return text.size() >= 40 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string packed(const fs::path& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with(" " + name)) return line.substr(0, line.find(' '));
  }
  return {};
}

}  // namespace

std::string git_commit(const std::string& folder) {
  std::error_code code;
  fs::path at = fs::absolute(folder, code).lexically_normal();
  while (!fs::exists(at / ".git", code)) {
    if (at == at.parent_path()) return {};
    at = at.parent_path();
  }
  fs::path git = at / ".git";
  if (fs::is_regular_file(git, code)) {  // a further working tree of a repository elsewhere
    const fs::path elsewhere = after(first_line(git), "gitdir:");
    git = elsewhere.is_absolute() ? elsewhere : at / elsewhere;
  }
  std::string head = first_line(git / "HEAD");
  if (is_commit(head)) return head;
  const std::string name = after(head, "ref:");
  if (name.empty()) return {};
  const std::string shared = first_line(git / "commondir");
  const fs::path common = shared.empty() ? git : git / shared;
  for (const fs::path& where : {git, common}) {
    std::string commit = first_line(where / name);
    if (is_commit(commit)) return commit;
  }
  const std::string commit = packed(common / "packed-refs", name);
  return is_commit(commit) ? commit : std::string();
}

}  // namespace attnscope
