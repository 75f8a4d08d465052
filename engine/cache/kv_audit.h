// Somebody who watches every call to a block manager: before it, and after it with its outcome.
#pragma once

#include <cstdint>
#include <span>

namespace attnscope {

class KvManager;
struct Allocation;
struct KvRequest;
struct PrefixHit;
enum class Allocated;

enum class KvCallKind { kLookup, kAllocate, kCommit, kFree, kTake, kRelease, kEvict, kReset };
const char* kv_call_name(KvCallKind kind);

struct KvCall {
  KvCallKind kind = KvCallKind::kLookup;
  const KvRequest* request = nullptr;
  const Allocation* allocation = nullptr;
  std::span<const std::int32_t> blocks{};  // of release and evict
  std::int64_t tokens = 0;                 // of commit
  // Afterwards:
  const PrefixHit* hit = nullptr;  // of lookup
  Allocated outcome{};             // of allocate
};

class KvAudit {
 public:
  virtual ~KvAudit() = default;
  virtual void before(const KvManager& kv, const KvCall& call) = 0;
  virtual void after(const KvManager& kv, const KvCall& call) = 0;
};

}  // namespace attnscope
