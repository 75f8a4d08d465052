#include "app/text/folder_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "app/text/text.h"
#include "engine/config/scenario.h"
#include "engine/io/assets_folder.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostItems = 5000;

}  // namespace

Result<FolderList> list_folder(const std::string& path, std::string_view extension) {
  FolderList list;
  std::error_code code;
  const fs::path absolute = fs::absolute(path.empty() ? "." : path, code);
  if (code) return bad_input(fmt::format("{}: {}", shortened(path, 200), code.message()));
  list.path = absolute.lexically_normal().string();
  if (list.path.size() > 1 && list.path.ends_with('/')) list.path.pop_back();
  fs::directory_iterator at(list.path, code);
  if (code) {
    return bad_input(
        fmt::format("{}: cannot be listed: {}", shortened(list.path, 200), code.message()),
        "choose another folder");
  }
  for (; at != fs::directory_iterator(); at.increment(code)) {
    FolderItem item;
    item.name = at->path().filename().string();
    if (item.name.starts_with('.')) continue;
    std::error_code ignored;
    item.folder = at->is_directory(ignored);
    if (!item.folder) {
      if (!item.name.ends_with(extension)) {
        ++list.left_out;
        continue;
      }
      const std::uintmax_t bytes = at->file_size(ignored);
      item.bytes = ignored ? 0 : static_cast<std::int64_t>(bytes);
    }
    if (list.items.size() == kMostItems) {
      list.cut = true;
      break;
    }
    list.items.push_back(std::move(item));
  }
  // A failed increment() ends the loop like the folder's end.
  if (code) {
    return bad_input(fmt::format("{}: its listing broke off after {} names: {}",
                                 shortened(list.path, 200), list.items.size(), code.message()),
                     "try again, or choose another folder");
  }
  std::ranges::sort(list.items, [](const FolderItem& a, const FolderItem& b) {
    return a.folder != b.folder ? a.folder : lower(a.name) < lower(b.name);
  });
  return list;
}

std::string home_folder() {
  const char* folder = std::getenv("HOME");
  return folder != nullptr ? folder : "";
}

bool is_shipped(const std::string& path) {
  const Result<std::string> assets = assets_folder();
  return assets && path.starts_with(*assets + "/");
}

std::string typed_path(const std::string& folder, std::string_view typed) {
  const std::string text(trimmed(typed));
  if (text == "~" || text.starts_with("~/")) {
    if (const std::string home = home_folder(); !home.empty()) return home + text.substr(1);
  }
  return (fs::path(folder) / text).lexically_normal().string();
}

std::string free_file_name(const std::string& stem, std::string_view extension) {
  std::error_code code;
  for (int i = 1;; ++i) {
    const std::string name =
        fmt::format("{}{}{}", stem, i > 1 ? fmt::format("-{}", i) : "", extension);
    if (!fs::exists(name, code)) return fs::absolute(name, code).string();
  }
}

std::string free_capture_name(const std::string& scenario) {
  const std::string stem = fs::path(scenario).stem().string();
  return free_file_name(stem.empty() ? "run" : stem, ".acap");
}

}  // namespace attnscope
