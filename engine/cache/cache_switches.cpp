#include "engine/cache/cache_switches.h"

#include <fmt/format.h>

namespace attnscope {

const char* cache_profile_name(CacheProfile profile) {
  return profile == CacheProfile::kM ? "M" : "A";
}

Result<CacheProfile> parse_cache_profile(std::string_view name) {
  if (name == "M") return CacheProfile::kM;
  if (name == "A") return CacheProfile::kA;
  return bad_input(fmt::format("\"{}\" is no profile of the block manager", name), "choose M or A");
}

CacheSwitches switches_of(CacheProfile profile) {
  CacheSwitches s;
  if (profile == CacheProfile::kM) return s;
  s.free_order = FreeOrder::kSplitFront;
  s.mask = RetentionMask::kTailDraftShift;
  s.window_basis = WindowBasis::kProcessed;
  s.adopt = AdoptOrder::kTwoPhase;
  s.cap = CapBasis::kInFlight;
  s.partial_hashes = true;
  s.victim_cursor = VictimCursor::kBelowCursor;
  s.defer_frees = true;
  s.stats = StatsPoint::kAdmission;
  s.full_trim = FullTrim::kStoredLength;
  s.layout = StorageLayout::kPacked;
  s.concurrency = ConcurrencyFigure::kByGroup;
  return s;
}

}  // namespace attnscope
