// What a file picker shows: folders and scenario files of a folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/params/result.h"

namespace attnscope {

struct FolderItem {
  std::string name;
  bool folder = false;
  std::int64_t bytes = 0;  // of a file
};

struct FolderList {
  std::string path;               // absolute
  std::vector<FolderItem> items;  // folders first, each by name; hidden ones left out
  std::int64_t left_out = 0;      // files of other kinds
  bool cut = false;               // more items than are listed
};

// Items whose name ends in `extension`, and folders. Errors say what is wrong with the path.
Result<FolderList> list_folder(const std::string& path, std::string_view extension);

// Where a file goes that nobody named: the first free of STEM.png, STEM-2.png, .. in the folder
// where the app was started. extension: with its dot.
std::string free_file_name(const std::string& stem, std::string_view extension);
// The same of a scenario's capture: NAME.acap; "run" where it has no name.
std::string free_capture_name(const std::string& scenario);

// "" where the environment names none.
std::string home_folder();
// Lies in the assets: nobody's own file.
bool is_shipped(const std::string& path);

// The path of a name typed while `folder` is shown: "~" is the home folder, an absolute path stays.
std::string typed_path(const std::string& folder, std::string_view typed);

}  // namespace attnscope
