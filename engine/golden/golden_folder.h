// A folder of goldens: which there are, what is pending, what nobody asks for any more.
//
//   NAME.golden.json     the definition         written by people
//   NAME.accepted.json   the accepted values, or a record of large ones    written by accept
//   NAME.received.json   those of a failed run  written by a run, gone with accept or reject
//   SCENARIO.json        a scenario that a definition names
//   CASE.json            an op case that a definition names, its tensors in CASE.safetensors
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/golden/golden_large.h"

namespace attnscope {

struct GoldenEntry {
  bool defined = false, accepted = false, received = false;
};

struct GoldenOrphan {
  std::string file;  // name in the folder
  std::string why;
  bool removable = false;  // values without a definition; a stray scenario may be somebody's work
};

class GoldenFolder {
 public:
  // AS_BAD_INPUT when there is no such folder.
  static Result<GoldenFolder> open(const std::string& path);

  const std::string& path() const { return path_; }
  // " --goldens FOLDER", for commands of it that messages print.
  std::string words() const;
  // By name, those without a definition included.
  const std::map<std::string, GoldenEntry>& entries() const { return entries_; }
  std::vector<std::string> defined() const;
  std::vector<std::string> pending() const;  // defined ones with received values
  // Files that belong to no golden. A definition that cannot be read names no scenario.
  std::vector<GoldenOrphan> orphans() const;

  // Names as given, all defined ones for none. AS_USAGE for one that does not exist, or that is no
  // name ("../x").
  Result<std::vector<std::string>> select(const std::vector<std::string>& names) const;

  std::string file(const std::string& name, const char* suffix) const;
  Result<GoldenSpec> spec(const std::string& name) const;
  // Where values of large goldens are kept; empty (as opened) = there are no new ones.
  void keep_large_in(std::string folder) { large_folder_ = std::move(folder); }
  // The record of a large golden; nullopt: its accepted values are small.
  Result<std::optional<LargeGolden>> large(const std::string& name) const;
  // Values that a run made, in the place of accepted ones that are not on this machine.
  Result<void> keep_made(const LargeGolden& large, const GoldenValues& values);

  // suffix: kAcceptedSuffix or kReceivedSuffix. Of a large golden whose values are nowhere: no
  // taps.
  Result<GoldenValues> values(const std::string& name, const char* suffix) const;

  Result<void> write_received(const GoldenValues& values);
  Result<void> remove_received(const std::string& name);
  // The received values become the accepted ones, with the reason and who says so. AS_USAGE for a
  // reason that is empty or longer than a line; AS_BAD_INPUT without received values, for those of
  // another definition, and for more than a golden may take where large ones have no folder.
  Result<void> accept(const std::string& name, const GoldenOrigin& origin);
  // Removes the removable orphans and says which.
  Result<std::vector<std::string>> prune();

 private:
  Result<void> write_large(const std::string& file, const std::string& text) const;
  Result<GoldenValues> large_values(const LargeGolden& large) const;

  std::string path_, large_folder_;
  std::map<std::string, GoldenEntry> entries_;
  std::vector<std::string> others_;  // *.json that are none of the three
};

}  // namespace attnscope
