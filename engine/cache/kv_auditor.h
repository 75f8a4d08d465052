// Checks every invariant of the block manager around every call to it, and keeps the first
// violation. Costs time in proportion to the pool and all tables: for tests and debugging.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/cache/call_invariants.h"

namespace attnscope {

// I15: the map that a stream of events tells of.
class KvEventMirror {
 public:
  // False for the removal of content that was never stored.
  bool apply(const KvEvent& event);
  std::int64_t count(const std::string& hash, std::int32_t group) const;
  std::size_t size() const { return blocks_.size(); }
  const std::map<std::pair<std::string, std::int32_t>, std::int64_t>& blocks() const {
    return blocks_;
  }

 private:
  std::map<std::pair<std::string, std::int32_t>, std::int64_t> blocks_;  // (hash, group) -> blocks
};
Finding check_events(const KvManager& kv, const KvEventMirror& mirror);  // I15

class KvAuditor : public KvAudit {
 public:
  // Which request a slot's tables belong to; which blocks are held beside the tables.
  std::function<const KvRequest*(std::int32_t)> request;
  std::function<std::vector<std::int32_t>()> pins;
  std::int64_t lookahead = 0;

  void before(const KvManager& kv, const KvCall& call) override;
  void after(const KvManager& kv, const KvCall& call) override;

  // All that the first bad call violated.
  const std::vector<Violation>& findings() const { return findings_; }
  std::int64_t calls() const { return calls_; }
  // Of a check outside of calls to the block manager; met: by what.
  void report(Finding finding, const char* met) {
    if (!finding || !findings_.empty()) return;
    finding->met = met;
    findings_.push_back(std::move(*finding));
  }

 private:
  void note_drop_point(const KvManager& kv, const KvCall& call);
  std::vector<Violation> check(const KvManager& kv, const KvCall& call, const KvSnapshot& state);

  std::vector<Violation> findings_;
  KvSnapshot before_;
  std::int64_t predicted_ = 0;
  std::vector<std::int64_t> drop_points_;  // by slot
  bool keys_taken_away_ = false;
  std::int64_t calls_ = 0;
};

}  // namespace attnscope
