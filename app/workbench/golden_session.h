// Going through the pending goldens of a folder, one after the other: what the app's review does.
//
//   GoldenSession session;
//   session.open("");                       // tests/goldens
//   session.current()->sentence;  session.accept("the new weights are right");
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/reports/golden_review.h"

namespace attnscope {

class GoldenSession {
 public:
  // Reads the folder and the first pending golden, which may be a damaged one; empty = where
  // golden_folder() looks.
  Result<void> open(const std::string& folder);
  bool is_open() const { return folder_.has_value(); }

  const std::vector<std::string>& pending() const { return pending_; }
  // The one that is looked at; null when nothing is pending.
  const GoldenReview* current() const { return review_.get(); }
  // "2 of 34 goldens in tests/goldens are pending", with what was decided so far.
  std::string sentence() const;
  // Another number once something else is shown.
  std::uint64_t version() const { return version_; }

  Result<void> select(const std::string& name);
  // Of the current one; then the next is shown. AS_USAGE when there is none, or no reason.
  Result<void> accept(const std::string& reason);
  Result<void> reject();
  Result<void> skip();

 private:
  Result<void> need_current() const;
  // Shows the one behind the current one, or the first.
  void advance(bool decided);
  void show(const std::string& name);

  std::optional<GoldenFolder> folder_;
  std::vector<std::string> pending_;
  std::unique_ptr<GoldenReview> review_;
  int accepted_ = 0, rejected_ = 0;
  std::uint64_t version_ = 0;
};

}  // namespace attnscope
