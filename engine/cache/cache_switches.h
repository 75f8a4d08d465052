// Where two published states of the serving engine differ in which block ids, hits or admissions
// come out, each place is one switch. Profile M: the state the hybrid-cache write-ups of May 2026
// describe; profile A: August 2026. (How the hash of a block is made of the hashes of its parts
// differs too, but both ways make the same blocks equal: no switch.)
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/params/result.h"

namespace attnscope {

// Where blocks go that nobody holds any more.
enum class FreeOrder {
  kAppend,            // all at the tail
  kSplitFront,        // with caching: those without a key at the front, the others at the tail
  kLifoWhenUncached,  // as kSplitFront; without caching all at the front
};
enum class RetentionMask { kTail, kTailDraftShift };  // which windowed blocks are worth a key
enum class WindowBasis { kComputed, kProcessed };     // tokens in flight count as computed, or not
enum class AdoptOrder { kPerGroup, kTwoPhase };  // touch all hits before external blocks are taken
enum class CapBasis { kBudget, kInFlight };      // tokens behind the admission cap
enum class VictimCursor { kScheduledOnly, kBelowCursor };  // when a preemption moves the cursor
enum class StatsPoint { kLookup, kAdmission };             // when a lookup is counted
enum class FullTrim { kFloor, kStoredLength };             // of a full group looked up once already
enum class StorageLayout { kPerTensor, kPacked };
enum class ConcurrencyFigure { kByBytes, kByGroup };

struct CacheSwitches {
  FreeOrder free_order = FreeOrder::kAppend;
  RetentionMask mask = RetentionMask::kTail;
  WindowBasis window_basis = WindowBasis::kComputed;
  AdoptOrder adopt = AdoptOrder::kPerGroup;
  CapBasis cap = CapBasis::kBudget;
  bool partial_hashes = false;  // a prompt's last hash block in a larger block gets a key too
  VictimCursor victim_cursor = VictimCursor::kScheduledOnly;
  bool defer_frees = false;  // freed blocks wait for the steps in flight
  StatsPoint stats = StatsPoint::kLookup;
  FullTrim full_trim = FullTrim::kFloor;
  StorageLayout layout = StorageLayout::kPerTensor;
  ConcurrencyFigure concurrency = ConcurrencyFigure::kByBytes;

  bool operator==(const CacheSwitches&) const = default;
};

enum class CacheProfile { kM, kA };
const char* cache_profile_name(CacheProfile profile);  // "M", "A"
Result<CacheProfile> parse_cache_profile(std::string_view name);
CacheSwitches switches_of(CacheProfile profile);

}  // namespace attnscope
