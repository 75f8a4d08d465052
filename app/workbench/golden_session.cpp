#include "app/workbench/golden_session.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/io/json_object.h"
#include "engine/io/plural.h"

namespace attnscope {

Result<void> GoldenSession::open(const std::string& folder) {
  auto opened = open_goldens(folder);
  if (!opened) return opened.error();
  folder_ = std::move(*opened);
  pending_ = folder_->pending();
  accepted_ = rejected_ = 0;
  review_.reset();
  ++version_;
  if (!pending_.empty()) show(pending_.front());
  return {};
}

std::string GoldenSession::sentence() const {
  if (!folder_) return {};
  const std::size_t all = folder_->defined().size();
  const std::string& path = folder_->path();
  std::string out;
  if (all == 0) {
    out = fmt::format("No golden is defined in {}", path);
  } else if (all == 1) {
    out = fmt::format("The one golden in {} is {}pending", path, pending_.empty() ? "not " : "");
  } else if (pending_.empty()) {
    out = fmt::format("None of the {} goldens in {} is pending", all, path);
  } else {
    out = fmt::format("{} of {} goldens in {} {} pending", pending_.size(), all, path,
                      agree(pending_.size(), "is", "are"));
  }
  if (accepted_ + rejected_ > 0) {
    out += fmt::format("; {} accepted, {} rejected", accepted_, rejected_);
  }
  return out + ".";
}

Result<void> GoldenSession::need_current() const {
  if (review_) return {};
  return usage_error("no pending golden is shown", "attnscope golden run keeps what differs");
}

void GoldenSession::show(const std::string& name) {
  ++version_;
  // Its taps point into lists of its own, which move with it.
  review_ = std::make_unique<GoldenReview>(review_pending(*folder_, name));
}

Result<void> GoldenSession::select(const std::string& name) {
  if (!folder_ || std::ranges::find(pending_, name) == pending_.end()) {
    return usage_error(fmt::format("'{}' is not pending", name.substr(0, 40)),
                       pending_.empty() ? "nothing is" : "pending: " + join(pending_));
  }
  show(name);
  return {};
}

void GoldenSession::advance(bool decided) {
  const auto at = std::ranges::find(pending_, review_->name);
  auto next = static_cast<std::size_t>(at - pending_.begin()) + (decided ? 0 : 1);
  if (decided) pending_.erase(at);
  review_.reset();
  ++version_;
  if (!pending_.empty()) show(pending_[next < pending_.size() ? next : 0]);
}

Result<void> GoldenSession::accept(const std::string& reason) {
  if (auto ok = need_current(); !ok) return ok;
  GoldenOrigin origin = golden_origin(folder_->path());
  origin.reason = reason;
  if (auto ok = folder_->accept(review_->name, origin); !ok) return ok;
  ++accepted_;
  advance(true);
  return {};
}

Result<void> GoldenSession::reject() {
  if (auto ok = need_current(); !ok) return ok;
  if (auto ok = folder_->remove_received(review_->name); !ok) return ok;
  ++rejected_;
  advance(true);
  return {};
}

Result<void> GoldenSession::skip() {
  if (auto ok = need_current(); !ok) return ok;
  advance(false);
  return {};
}

}  // namespace attnscope
