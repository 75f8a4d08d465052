#include "engine/plugin/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "engine/plugin/load.h"
#include "engine/plugin/protocol.h"
#include "kernels/cpu/thread_pool.h"

namespace attnscope {
namespace {

// A tensor with a page before and one behind it that nobody may touch.
struct Mapped {
  std::uint8_t* begin = nullptr;  // of the page before
  std::size_t size = 0;
  std::uint8_t* data = nullptr;
};

// What a signal handler can look at.
PluginRequest request;
Mapped mapped[kMostRegions];
PluginReply last_words;
volatile sig_atomic_t in_call = 0;

void say(const PluginReply& reply) {
  // The parent is gone when nobody listens: nothing is left to do.
  if (::send(kPluginSocket, &reply, sizeof(reply), MSG_NOSIGNAL) < 0) ::_exit(0);
}

std::int32_t is_write([[maybe_unused]] void* context) {
#if defined(__x86_64__) && defined(REG_ERR)
  const auto* machine = static_cast<const ucontext_t*>(context);
  return (machine->uc_mcontext.gregs[REG_ERR] & 2) != 0 ? 1 : 0;
#else
  return -1;
#endif
}

void on_signal(int number, siginfo_t* info, void* context) {
  // Threads of one op often fail together: the first one speaks, and ends all of them.
  static std::atomic_flag taken = ATOMIC_FLAG_INIT;
  while (taken.test_and_set()) ::pause();
  last_words.word = PluginWord::kCrashed;
  last_words.signal = number;
  last_words.write = is_write(context);
  if (in_call != 0 && (number == SIGSEGV || number == SIGBUS)) {
    const auto* address = static_cast<const std::uint8_t*>(info->si_addr);
    for (std::int32_t i = 0; i < request.regions; ++i) {
      if (address < mapped[i].begin || address >= mapped[i].begin + mapped[i].size) continue;
      last_words.word = PluginWord::kTouched;
      last_words.region = i;
      last_words.offset = address - mapped[i].data;
    }
  }
  say(last_words);
  ::_exit(0);
}

void catch_signals() {
  // A stack of its own, so that one that overflowed can be reported.
  static unsigned char stack[64 * 1024];
  stack_t other{};
  other.ss_sp = stack;
  other.ss_size = sizeof(stack);
  ::sigaltstack(&other, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    ::sigaction(number, &action, nullptr);
  }
}

void unmap_all() {
  for (Mapped& m : mapped) {
    if (m.begin != nullptr) ::munmap(m.begin, m.size);
    m = {};
  }
}

bool map_all() {
  unmap_all();
  for (std::int32_t i = 0; i < request.regions; ++i) {
    const PluginRegion& region = request.region[i];
    const auto size = static_cast<std::size_t>((region.pages + 2) * kPluginPage);
    void* space = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (space == MAP_FAILED) return false;
    mapped[i] = {static_cast<std::uint8_t*>(space), size, nullptr};
    std::uint8_t* first = mapped[i].begin + kPluginPage;
    const int rights = region.written != 0 ? PROT_READ | PROT_WRITE : PROT_READ;
    if (::mmap(first, static_cast<std::size_t>(region.pages * kPluginPage), rights,
               MAP_SHARED | MAP_FIXED, kPluginMemory, region.offset) == MAP_FAILED) {
      return false;
    }
    mapped[i].data = first + region.start;
  }
  return true;
}

PluginReply run(const as_lane& lane, const as_threads* threads) {
  PluginReply reply{};
  reply.word = PluginWord::kDone;
  if (!map_all()) {
    reply.status = AS_NO_ENVIRONMENT;
    std::strcpy(reply.text, "no address space for its tensors");
    return reply;
  }
  // Aligned as a struct wants it.
  alignas(16) static unsigned char params[sizeof(request.params)];
  std::memcpy(params, request.params, sizeof(params));
  for (std::int32_t i = 0; i < request.pointers; ++i) {
    void* data = mapped[request.pointer[i].region].data;
    std::memcpy(params + request.pointer[i].offset, &data, sizeof(data));
  }
  as_call call{};
  call.struct_size = sizeof(call);
  call.threads = threads;
  as_error error{};
  const auto start = std::chrono::steady_clock::now();
  in_call = 1;
  reply.status = lane.ops[request.op](params, &call, &error);
  in_call = 0;
  const std::chrono::duration<double, std::micro> elapsed =
      std::chrono::steady_clock::now() - start;
  reply.microseconds = elapsed.count();
  error.message[sizeof(error.message) - 1] = '\0';
  std::strncpy(reply.text, error.message, sizeof(reply.text) - 1);
  return reply;
}

// Goes with its parent, also out of a call. (A signal at the parent's death would come with the end
// of the one thread that started this process.)
void end_with_parent() {
  // Its own number: what the plugin closes says nothing of the parent.
  const int own = ::fcntl(kPluginSocket, F_DUPFD_CLOEXEC, 64);
  std::thread([own] {
    pollfd socket{own, 0, 0};
    while (::poll(&socket, 1, -1) <= 0) {
    }
    ::_exit(0);
  }).detach();
}

}  // namespace

int run_plugin_child(const char* library) {
  end_with_parent();
  // Leaves no core file.
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  catch_signals();
  PluginReply hello{};
  auto lane = load_plugin_lane(library);
  if (!lane) {
    hello.word = PluginWord::kCannot;
    hello.status = lane.error().code;
    std::strncpy(hello.text, lane.error().text().c_str(), sizeof(hello.text) - 1);
    say(hello);
    return 0;
  }
  hello.word = PluginWord::kHello;
  for (int op = 0; op < AS_OP_COUNT; ++op) hello.ops[op] = lane->ops[op] != nullptr ? 1 : 0;
  std::strncpy(hello.name, lane->name, sizeof(hello.name) - 1);
  if (lane->description != nullptr) {
    std::strncpy(hello.text, lane->description, sizeof(hello.text) - 1);
  }
  say(hello);
  std::unique_ptr<cpu::ThreadPool> pool;
  for (;;) {
    const ssize_t got = ::recv(kPluginSocket, &request, sizeof(request), 0);
    if (got != static_cast<ssize_t>(sizeof(request))) return 0;  // the parent is done
    const int threads = std::max(1, request.threads);
    if (!pool || pool->num_threads() != threads) pool = std::make_unique<cpu::ThreadPool>(threads);
    say(run(*lane, pool->handle()));
  }
}

}  // namespace attnscope
