#include "engine/io/json_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "engine/io/open_file.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

Error file_error(const std::string& path, const char* doing, int code) {
  const char* hint = "";
  if (code == EFBIG) hint = "raise the limit of a file's size: ulimit -f";
  if (code == ENOSPC || code == EDQUOT) hint = "make room on the disk, or choose another place";
  return bad_input(fmt::format("{}: {}: {}", path, doing, std::strerror(code)), hint);
}

// Closes on scope exit.
class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return fd_; }
  bool close() {
    const int fd = fd_;
    fd_ = -1;
    return ::close(fd) == 0;
  }

 private:
  int fd_;
};

bool write_all(int fd, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

// /dev/stdout, a pipe: nothing to keep intact, and rename would replace the device.
Result<void> write_in_place(const std::string& path, const std::string& text) {
  File file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() < 0) return file_error(path, "cannot open for writing", errno);
  if (!write_all(file.get(), text)) return file_error(path, "cannot write", errno);
  return {};
}

// Characters that also count how far the parser has read, so that a callback knows where it is.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** furthest_;
};

// "NAME: line L, column C" of a byte; the column counts from 1.
std::string position(const std::string& text, std::size_t offset, const std::string& name,
                     int first_line) {
  offset = std::min(offset, text.size());
  auto line = static_cast<std::size_t>(first_line);
  std::size_t line_start = 0;
  for (std::size_t i = 0; i < offset; ++i) {
    if (text[i] == '\n') {
      ++line;
      line_start = i + 1;
    }
  }
  return fmt::format("{}: line {}, column {}", name, line, offset - line_start + 1);
}

struct TooDeep {};

// The parser's own text without its tag and position.
std::string reason(const std::string& what) {
  constexpr std::size_t kLongest = 240;
  std::string text = what;
  const std::size_t column = text.find(", column ");
  const std::size_t colon = text.find(": ", column == std::string::npos ? 0 : column);
  const std::size_t tag = text.find("] ");
  if (column != std::string::npos && colon != std::string::npos) {
    text = text.substr(colon + 2);
  } else if (tag != std::string::npos) {
    text = text.substr(tag + 2);
  }
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "..";
  return text;
}

// hint: what the text has to be, for the error.
Result<json> parse(const std::string& text, const std::string& name, int first_line,
                   const char* hint) {
  const char* furthest = text.data();
  std::vector<std::unordered_set<std::string>> keys;  // of every open object
  std::string duplicate;
  std::size_t duplicate_at = 0;
  const json::parser_callback_t watch = [&](int depth, json::parse_event_t event, json& value) {
    if (depth >= kDeepestJson) throw TooDeep{};
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && duplicate.empty()) {
      const auto key = value.get<std::string>();
      if (!keys.back().insert(key).second) {
        duplicate = json(key).dump();  // quoted as in the file
        // The parser has read up to the closing quote.
        const auto end = static_cast<std::size_t>(furthest - text.data());
        duplicate_at = end - std::min(end, duplicate.size());
      }
    }
    return true;
  };
  const auto read_until = [&] {
    const auto read = static_cast<std::size_t>(furthest - text.data());
    return read > 0 ? read - 1 : 0;
  };
  try {
    json value = json::parse(CountingIterator(text.data(), &furthest),
                             CountingIterator(text.data() + text.size(), &furthest), watch,
                             /*allow_exceptions=*/true, /*ignore_comments=*/true);
    if (!duplicate.empty()) {
      return bad_input(fmt::format("{}: duplicate key {}",
                                   position(text, duplicate_at, name, first_line), duplicate),
                       "every key may appear once in an object");
    }
    return value;
  } catch (const TooDeep&) {
    return bad_input(fmt::format("{}: nested deeper than {} levels",
                                 position(text, read_until(), name, first_line), kDeepestJson),
                     "lists and objects inside one another are limited");
  } catch (const json::exception& e) {
    return bad_input(
        fmt::format("{}: {}", position(text, read_until(), name, first_line), reason(e.what())),
        hint);
  }
}

}  // namespace

Result<std::string> read_text_file(const std::string& path, std::size_t max_bytes) {
  const auto opened = open_to_read(path);
  if (!opened) return opened.error();
  File file(*opened);
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = ::read(file.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(path, "cannot read", errno);
    if (n == 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
    if (text.size() > max_bytes) {
      return bad_input(
          fmt::format("{}: larger than {} bytes, the most that is read", path, max_bytes));
    }
  }
}

Result<void> write_text_file(const std::string& path, const std::string& text) {
  std::error_code code;
  if (fs::is_directory(path, code)) return bad_input(path + ": is a folder, not a file");
  std::string target = path;
  struct stat old {};
  const bool replaces = ::stat(path.c_str(), &old) == 0;
  if (replaces) {
    if (!S_ISREG(old.st_mode)) return write_in_place(path, text);
    // A link stays a link: the file it points to is replaced.
    const fs::path real = fs::canonical(path, code);
    if (!code) target = real.string();
  }
  const std::string folder = fs::path(target).parent_path().string();
  const std::string where = folder.empty() ? "." : folder;
  std::string temporary;
  File file(open_temporary(target, temporary));
  if (file.get() < 0) {
    Error error = file_error(path, "cannot write", errno);
    error.hint = "the folder " + where + " must exist and be writable";
    return error;
  }
  const auto give_up = [&](int why) -> Error {
    ::unlink(temporary.c_str());
    return file_error(path, "cannot write", why);
  };
  if (replaces && ::fchmod(file.get(), old.st_mode & 07777) != 0) return give_up(errno);
  if (!write_all(file.get(), text)) return give_up(errno);
  if (::fsync(file.get()) != 0) return give_up(errno);
  if (!file.close()) return give_up(errno);
  if (::rename(temporary.c_str(), target.c_str()) != 0) return give_up(errno);
  // The rename itself reaches the disk only with the folder.
  File parent(::open(where.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (parent.get() < 0 || ::fsync(parent.get()) != 0) {
    return file_error(where, "written, but the folder cannot be synced", errno);
  }
  return {};
}

Result<json> parse_json(const std::string& text, const std::string& name) {
  return parse(text, name, 1,
               "the file is JSON; // and /* */ comments are allowed, trailing commas are not");
}

Result<void> for_each_json_line(const std::string& text, const std::string& name,
                                const std::function<Result<void>(const json& value, int line,
                                                                 const std::string& place)>& take) {
  int number = 1;
  for (std::size_t at = 0; at < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const std::size_t start = line.find_first_not_of(" \t\r");
    if (start == std::string::npos || line.compare(start, 2, "//") == 0) continue;
    const Result<json> value =
        parse(line, name, number,
              "every line of the file is a JSON value by itself, empty, or "
              "a comment that begins with //; trailing commas are not allowed");
    if (!value) return value.error();
    if (auto ok = take(*value, number, fmt::format("{}: line {}", name, number)); !ok) return ok;
  }
  return {};
}

}  // namespace attnscope
