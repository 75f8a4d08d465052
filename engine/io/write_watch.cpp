#include "engine/io/write_watch.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <memory>
#include <mutex>
#include <vector>

namespace attnscope {
namespace {

// What one write opens, at addresses that are its multiples.
constexpr std::uintptr_t kRun = std::uintptr_t{64} << 10;
constexpr std::size_t kMostRegions = 4096;

using Count = std::atomic<std::uint32_t>;

// Whole pages, by run how often a write has opened it. A handler of signals reads all of it.
struct Region {
  std::atomic<std::uintptr_t> begin{0}, end{0};  // 0, 0: none
  std::atomic<Count*> writes{nullptr};
  std::size_t room = 0, users = 0;  // of writes; watches
};

// A region as it was at one moment: others may end while a handler looks.
struct Seen {
  std::uintptr_t begin = 0, end = 0;
  Count* writes = nullptr;

  static Seen of(const Region& region) {
    const std::uintptr_t begin = region.begin;
    const Seen seen{begin, region.end, region.writes};
    return region.begin == begin ? seen : Seen{};
  }
  bool has(std::uintptr_t at) const { return begin != 0 && at >= begin && at < end; }
  std::uintptr_t first_run() const { return begin / kRun; }
};

std::array<Region, kMostRegions> watched_regions;
std::atomic<std::size_t> num_regions{0};
std::mutex making;
// Never given back, nor when the program ends: a handler may be reading.
auto& all_counts = *new std::vector<std::unique_ptr<Count[]>>;
struct sigaction handler_before;

bool protect(std::uintptr_t begin, std::uintptr_t end, int rights) {
  // Addresses are numbers here, since a handler reads them as atomics.
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return begin >= end || ::mprotect(reinterpret_cast<void*>(begin), end - begin, rights) == 0;
}

// The part of a region that lies in a run.
bool protect_run(const Seen& region, std::uintptr_t run, int rights) {
  return protect(std::max(run * kRun, region.begin), std::min((run + 1) * kRun, region.end),
                 rights);
}

// Opens runs, then counts: who looks between the two protects them again before the write is made,
// or finds another count the next time. False where pages cannot be opened.
bool open_run(const Seen& region, std::uintptr_t run) {
  std::uintptr_t first = run, last = run;
  if (!protect_run(region, run, PROT_READ | PROT_WRITE)) {
    // Too many pieces of memory with rights of their own: as one piece.
    if (!protect(region.begin, region.end, PROT_READ | PROT_WRITE)) return false;
    first = region.first_run();
    last = (region.end - 1) / kRun;
  }
  for (; first <= last; ++first) region.writes[first - region.first_run()].fetch_add(1);
  return true;
}

// Of all regions that have the address; whether one does.
bool open_at(std::uintptr_t at) {
  bool ours = false;
  const std::size_t n = num_regions.load();
  for (std::size_t i = 0; i < n; ++i) {
    const Seen region = Seen::of(watched_regions[i]);
    if (!region.has(at)) continue;
    if (!open_run(region, at / kRun)) return false;
    ours = true;
  }
  return ours;
}

// False where the machine says that it was none: a jump there would fault for ever.
bool may_be_write([[maybe_unused]] void* context) {
#if defined(__x86_64__) && defined(REG_ERR)
  constexpr long long kWrite = 2;
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWrite) != 0;
#else
  return true;
#endif
}

// Where a thread's last fault was that no region explains.
thread_local std::uintptr_t unexplained = 0;

void on_fault(int number, siginfo_t* info, void* context) {
  const int error = errno;
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const bool wrote = info->si_code == SEGV_ACCERR && may_be_write(context);
  const bool ours = wrote && open_at(at);
  errno = error;
  if (ours) {
    unexplained = 0;
    return;
  }
  // The region may have gone, and opened its pages, while the write was on its way here.
  if (wrote && unexplained != at) {
    unexplained = at;
    return;
  }
  const struct sigaction& before = handler_before;
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(number, info, context);
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    return before.sa_handler(number);
  }
  // As if nobody had caught it: it comes again when this returns, unless somebody sent it.
  ::sigaction(SIGSEGV, &before, nullptr);
  if (info->si_code <= 0) ::raise(number);
}

bool catch_faults() {
  static const bool caught = [] {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    return ::sigaction(SIGSEGV, &action, &handler_before) == 0;
  }();
  return caught;
}

// Opens the pages of a region that ends. Others that have some of them hear no more of writes
// there, so that they are told of one. `making` is held.
void open_for_good(std::uintptr_t begin, std::uintptr_t end, const Region& ends) {
  protect(begin, end, PROT_READ | PROT_WRITE);
  for (std::size_t i = 0; i < num_regions.load(); ++i) {
    const Region& other = watched_regions[i];
    if (&other == &ends || other.users == 0) continue;
    const Seen region = Seen::of(other);
    const std::uintptr_t from = std::max(begin, region.begin), to = std::min(end, region.end);
    if (from >= to) continue;
    for (std::uintptr_t run = from / kRun; run <= (to - 1) / kRun; ++run) {
      region.writes[run - region.first_run()].fetch_add(1);
    }
  }
}

// A region of these pages, or -1. `making` is held.
int make_region(std::uintptr_t begin, std::uintptr_t end) {
  std::size_t at = num_regions.load();
  for (std::size_t i = num_regions.load(); i-- > 0;) {
    Region& region = watched_regions[i];
    if (region.begin.load() == begin && region.end.load() == end) {
      ++region.users;
      return static_cast<int>(i);
    }
    if (region.users == 0) at = i;
  }
  if (at == kMostRegions || !catch_faults()) return -1;
  Region& region = watched_regions[at];
  const std::size_t runs = (end - 1) / kRun - begin / kRun + 1;
  if (region.room < runs) {
    all_counts.push_back(std::make_unique<Count[]>(runs));
    region.writes = all_counts.back().get();
    region.room = runs;
  }
  region.begin = begin;
  region.end = end;
  region.users = 1;
  if (at == num_regions.load()) num_regions = at + 1;
  if (protect(begin, end, PROT_READ)) return static_cast<int>(at);
  open_for_good(begin, end, region);
  region.end = region.begin = 0;
  region.users = 0;
  return -1;
}

}  // namespace

WriteWatch::WriteWatch(const void* data, std::size_t bytes, std::size_t part)
    : data_(reinterpret_cast<std::uintptr_t>(data)),
      bytes_(bytes),
      part_(part),
      seen_((bytes + part - 1) / part) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t begin = (data_ + page - 1) / page * page;
  const std::uintptr_t end = (data_ + bytes) / page * page;
  if (begin >= end) return;
  const std::lock_guard lock(making);
  region_ = make_region(begin, end);
}

WriteWatch::~WriteWatch() {
  if (region_ < 0) return;
  const std::lock_guard lock(making);
  Region& region = watched_regions[static_cast<std::size_t>(region_)];
  if (--region.users > 0) return;
  // A write that is under way still finds it.
  open_for_good(region.begin, region.end, region);
  region.end = 0;
  region.begin = 0;
}

bool WriteWatch::written(std::size_t part) {
  if (region_ < 0) return true;
  const Seen region = Seen::of(watched_regions[static_cast<std::size_t>(region_)]);
  const std::uintptr_t begin = data_ + part * part_;
  const std::uintptr_t end = std::min(begin + part_, data_ + bytes_);
  if (begin < region.begin || end > region.end) return true;
  const std::uintptr_t first = begin / kRun, last = (end - 1) / kRun;
  std::uint64_t now = 1;
  for (std::uintptr_t run = first; run <= last; ++run) {
    now += region.writes[run - region.first_run()].load();
  }
  if (seen_[part] == now) return false;
  // They were counted before they are protected, so that no write goes uncounted.
  bool all = true;
  for (std::uintptr_t run = first; run <= last; ++run) {
    all = protect_run(region, run, PROT_READ) && all;
  }
  seen_[part] = all ? now : 0;
  return true;
}

}  // namespace attnscope
