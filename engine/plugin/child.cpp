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
#include "engine/plugin/regions.h"
#include "engine/plugin/sparse_pages.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/params/op_table.h"

namespace attnscope {
namespace {

// A tensor with a page before and one behind it that nobody may touch; or one on the device.
struct Mapped {
  std::uint8_t* begin = nullptr;  // of the page before
  std::size_t size = 0;
  std::uint8_t* data = nullptr;
};

// What a signal handler can look at.
PluginRequest the_request;
Mapped mapped_regions[kMostRegions];
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
    for (std::int32_t i = 0; i < the_request.regions; ++i) {
      if (address < mapped_regions[i].begin ||
          address >= mapped_regions[i].begin + mapped_regions[i].size)
        continue;
      last_words.word = PluginWord::kTouched;
      last_words.region = i;
      last_words.offset = address - mapped_regions[i].data;
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

bool mapped_here = false;  // not on the device

void unmap_all() {
  for (Mapped& m : mapped_regions) {
    if (mapped_here && m.begin != nullptr) ::munmap(m.begin, m.size);
    m = {};
  }
}

bool map_all() {
  unmap_all();
  mapped_here = true;
  for (std::int32_t i = 0; i < the_request.regions; ++i) {
    const PluginRegion& region = the_request.region[i];
    const auto size = static_cast<std::size_t>((region.pages + 2) * kPluginPage);
    void* space = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (space == MAP_FAILED) return false;
    mapped_regions[i] = {static_cast<std::uint8_t*>(space), size, nullptr};
    std::uint8_t* first = mapped_regions[i].begin + kPluginPage;
    const int rights = region.written != 0 ? PROT_READ | PROT_WRITE : PROT_READ;
    mapped_regions[i].data = first + region.start;
    if (region.sparse != 0) {
      bool all = true;
      each_extent(kPluginMemory, region, [&](std::int64_t from, std::int64_t to) {
        all = all &&
              ::mmap(first + from, static_cast<std::size_t>(to - from), rights,
                     MAP_SHARED | MAP_FIXED, kPluginMemory, region.offset + from) != MAP_FAILED;
      });
      if (!all) return false;
      continue;
    }
    if (::mmap(first, static_cast<std::size_t>(region.pages * kPluginPage), rights,
               MAP_SHARED | MAP_FIXED, kPluginMemory, region.offset) == MAP_FAILED) {
      return false;
    }
  }
  return true;
}

// The device and what the parent has shared of it.
class Device {
 public:
  explicit Device(const OpenPluginDevice& open) : open_(open) {}

  Result<void> attach(const PluginDevice::Handle& handle) {
    if (!device_) {
      auto device = open_();
      if (!device) return device.error();
      device_ = *device;
    }
    if (room_ != nullptr) device_->close(room_);
    room_ = nullptr;
    auto room = device_->open(handle);
    if (!room) return room.error();
    room_ = static_cast<std::uint8_t*>(*room);
    return {};
  }
  std::uint8_t* room() const { return room_; }
  PluginDevice& get() { return *device_; }

 private:
  OpenPluginDevice open_;
  std::shared_ptr<PluginDevice> device_;
  std::uint8_t* room_ = nullptr;
};

// Aligned as a struct wants it.
alignas(16) unsigned char own_params[sizeof(the_request.params)];

PluginReply answer(std::int32_t status, const char* text) {
  PluginReply reply{};
  reply.word = PluginWord::kDone;
  reply.status = status;
  std::strncpy(reply.text, text, sizeof(reply.text) - 1);
  return reply;
}

[[noreturn]] void give_up(const Error& error) {
  PluginReply reply = answer(error.code, error.message.c_str());
  reply.word = PluginWord::kDevice;
  say(reply);
  ::_exit(0);  // what a broken device does at an ordered end is its own affair
}

PluginReply called(const LoadedPlugin& plugin, const as_call& call) {
  as_error error{};
  const auto start = std::chrono::steady_clock::now();
  in_call = 1;
  const std::int32_t status = plugin.call(the_request.op, own_params, &call, &error);
  in_call = 0;
  const std::chrono::duration<double, std::micro> elapsed =
      std::chrono::steady_clock::now() - start;
  error.message[sizeof(error.message) - 1] = '\0';
  PluginReply reply = answer(status, error.message);
  reply.microseconds = elapsed.count();
  return reply;
}

PluginReply run(const LoadedPlugin& plugin, as_call call) {
  if (!map_all()) return answer(AS_NO_ENVIRONMENT, "no address space for its tensors");
  std::memcpy(own_params, the_request.params, sizeof(own_params));
  for (std::int32_t i = 0; i < the_request.pointers; ++i) {
    void* data = mapped_regions[the_request.pointer[i].region].data;
    std::memcpy(own_params + the_request.pointer[i].offset, &data, sizeof(data));
  }
  return called(plugin, call);
}

PluginReply run_on(Device& device, const LoadedPlugin& plugin, as_call call) {
  unmap_all();
  mapped_here = false;
  for (std::int32_t i = 0; i < the_request.regions; ++i) {
    const PluginRegion& region = the_request.region[i];
    std::uint8_t* begin = device.room() + region.offset;
    mapped_regions[i] = {begin, static_cast<std::size_t>(region.pages * kPluginPage),
                         begin + region.start};
  }
  std::memcpy(own_params, the_request.params, sizeof(own_params));
  point_to_device(own_params, {the_request.pointer, static_cast<std::size_t>(the_request.pointers)},
                  {the_request.region, static_cast<std::size_t>(the_request.regions)},
                  device.room());
  call.stream = device.get().stream();
  if (auto ok = device.get().begin(); !ok) give_up(ok.error());
  PluginReply reply = called(plugin, call);
  auto time = device.get().end();
  if (!time) give_up(time.error());
  reply.microseconds = *time;
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

int run_plugin_child(const char* library, const OpenPluginDevice& open_device) {
  end_with_parent();
  // Leaves no core file.
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  catch_signals();
  // They are meant for the parent, which may want an op's outputs before it ends.
  for (const int number : {SIGINT, SIGTERM}) ::signal(number, SIG_IGN);
  PluginReply hello{};
  auto plugin = load_plugin(library);
  if (!plugin) {
    hello.word = PluginWord::kCannot;
    hello.status = plugin.error().code;
    std::strncpy(hello.text, plugin.error().text().c_str(), sizeof(hello.text) - 1);
    say(hello);
    return 0;
  }
  hello.word = PluginWord::kHello;
  for (int i = 0; const as_op_info* info = as_op_at(i); ++i) {
    hello.ops[info->id] = plugin->ops[info->id].run != nullptr;
    hello.device_ops[info->id] = plugin->ops[info->id].on_device;
  }
  std::strncpy(hello.name, plugin->name.c_str(), sizeof(hello.name) - 1);
  std::strncpy(hello.text, plugin->description.c_str(), sizeof(hello.text) - 1);
  say(hello);
  Device device(open_device);
  std::unique_ptr<cpu::ThreadPool> pool;
  for (;;) {
    const ssize_t got = ::recv(kPluginSocket, &the_request, sizeof(the_request), 0);
    if (got != static_cast<ssize_t>(sizeof(the_request))) return 0;  // the parent is done
    if (the_request.ask == PluginAsk::kAttach) {
      if (auto ok = device.attach(the_request.handle); !ok) give_up(ok.error());
      say(answer(AS_OK, ""));
      continue;
    }
    const int threads = std::max(1, the_request.threads);
    if (!pool || pool->num_threads() != threads) pool = std::make_unique<cpu::ThreadPool>(threads);
    as_call call{};
    call.struct_size = sizeof(call);
    call.threads = pool->handle();
    say(the_request.ask == PluginAsk::kCallOnDevice ? run_on(device, *plugin, call)
                                                    : run(*plugin, call));
  }
}

}  // namespace attnscope
