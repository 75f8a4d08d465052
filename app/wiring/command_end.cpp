#include "app/wiring/command_end.h"

#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "app/text/interrupt.h"
#include "app/text/say.h"
#include "app/wiring/plugins.h"

namespace attnscope {
namespace {

constexpr const char* kNoMemory =
    "attnscope: not enough memory; ask for less, or run it on a larger machine";

std::terminate_handler g_before = nullptr;

// Of what leaves a thread of a library, or what it runs while it is loaded: nobody can catch that.
void terminated() {
  try {
    if (const std::exception_ptr what = std::current_exception()) std::rethrow_exception(what);
  } catch (const std::bad_alloc&) {
    say(stderr, "{}\n", kNoMemory);
    std::_Exit(AS_NO_ENVIRONMENT);
  } catch (...) {
  }
  if (g_before != nullptr) g_before();
  std::abort();
}

}  // namespace

int guarded_main(const std::function<int()>& body) {
  // A write beyond the limit of a file's size is an error like that of a full disk.
  ::signal(SIGXFSZ, SIG_IGN);
  if (const auto handler = std::get_terminate(); handler != terminated) {
    g_before = handler;
    std::set_terminate(terminated);
  }
  try {
    return body();
  } catch (const std::bad_alloc&) {
    say(stderr, "{}\n", kNoMemory);
    return AS_NO_ENVIRONMENT;
  } catch (const std::exception& e) {
    say(stderr, "attnscope: internal error: {}; please report this\n", e.what());
    return AS_INTERNAL;
  }
}

int exit_code_of(const Result<as_status>& result) {
  say(stderr, "{}", Lines{plugin_report()});
  const Result<void> written = all_said();
  const int interrupt = exit_code_of_interrupt();
  if (!result) {
    say(stderr, "attnscope: {}\n", result.error().text());
    return interrupt != 0 ? interrupt : result.error().code;
  }
  if (!written) {
    say(stderr, "attnscope: {}\n", written.error().text());
    return written.error().code;
  }
  if (interrupt != 0) return interrupt;
  return *result == AS_OK && !plugin_faults().empty() ? AS_MISMATCH : *result;
}

}  // namespace attnscope
