// Empty: the compiler imports this module of Testing, which Linux lacks, wherever Testing and UIKit are imported.
