print("mayfly")
