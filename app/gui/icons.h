// Code points of the icon font (Font Awesome 6 solid) that the app uses.
#pragma once

namespace attnscope::gui::icon {

inline constexpr const char* kCheck = "\xef\x80\x8c";         // f00c
inline constexpr const char* kCross = "\xef\x80\x8d";         // f00d
inline constexpr const char* kApprox = "\xe2\x89\x88";       // ≈, of the text face
inline constexpr const char* kTie = "\xef\x89\x8e";           // f24e scale-balanced
inline constexpr const char* kQuestion = "\x3f";              // ?
inline constexpr const char* kLayers = "\xef\x97\xbd";        // f5fd layer-group
inline constexpr const char* kPlay = "\xef\x81\x8b";          // f04b
inline constexpr const char* kStop = "\xef\x81\x8d";          // f04d
inline constexpr const char* kForwardStep = "\xef\x81\x91";   // f051
inline constexpr const char* kBackwardStep = "\xef\x81\x88";  // f048
inline constexpr const char* kForward = "\xef\x81\x8e";       // f04e
inline constexpr const char* kBackward = "\xef\x81\x8a";      // f04a
inline constexpr const char* kFastForward = "\xef\x81\x90";   // f050
inline constexpr const char* kFastBackward = "\xef\x81\x89";  // f049
inline constexpr const char* kAngleLeft = "\xef\x84\x84";     // f104
inline constexpr const char* kAngleRight = "\xef\x84\x85";    // f105
inline constexpr const char* kBug = "\xef\x86\x88";           // f188
inline constexpr const char* kSearch = "\xef\x80\x82";        // f002
inline constexpr const char* kCopy = "\xef\x83\x85";          // f0c5
inline constexpr const char* kFolder = "\xef\x81\xbc";        // f07c folder-open
inline constexpr const char* kSave = "\xef\x83\x87";          // f0c7
inline constexpr const char* kUndo = "\xef\x8b\xaa";          // f2ea rotate-left
inline constexpr const char* kRedo = "\xef\x8b\xb9";          // f2f9 rotate-right
inline constexpr const char* kWarning = "\xef\x81\xb1";       // f071
inline constexpr const char* kInfo = "\xef\x81\x9a";          // f05a
inline constexpr const char* kSpinner = "\xef\x84\x90";       // f110
inline constexpr const char* kGear = "\xef\x80\x93";          // f013
inline constexpr const char* kTarget = "\xef\x81\x9b";        // f05b crosshairs

}  // namespace attnscope::gui::icon
